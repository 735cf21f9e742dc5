//! Dead letters, beyond what every store must do.

use oncebox_core::message::Record;
use oncebox_core::names::Tenant;
use oncebox_core::store::{DeadFilter, DeadLetter, DeadLetters, Store};
use oncebox_mysql::MysqlStore;

use super::support::{claims, consumer, position, with_store};

fn letter(tenant: &str, id: &str, offset: i64, key: Option<&[u8]>) -> DeadLetter {
    let key = key.map(|key| key.to_vec().into());
    DeadLetter {
        tenant: Tenant::new(tenant).unwrap(),
        message_id: Some(id.to_owned()),
        record: Record { key, ..Record::at("stock.updates", 0, offset) },
        error: "no stock".to_owned(),
        attempts: 1,
    }
}

async fn park(store: &MysqlStore, letters: &[DeadLetter]) {
    let mut claimed = store.claim(&consumer(), &[]).await.unwrap();
    store.park(&mut claimed.txn, &consumer(), letters).await.unwrap();
    store.commit(claimed.txn, None).await.unwrap();
}

#[tokio::test]
async fn ids_and_tenants_are_found_byte_for_byte() {
    with_store(|store, _| async move {
        let letters = [
            letter("acme", "same", 1, None),
            letter("acme ", "same", 2, None),
            letter("ACME", "Same", 3, None),
            letter("", "same ", 4, None),
        ];
        park(&store, &letters).await;
        let any = DeadFilter { limit: 10, ..DeadFilter::default() };
        let by_id = |id: &str| DeadFilter { message_id: Some(id.to_owned()), ..any.clone() };
        let by_tenant = |tenant: &str| DeadFilter { tenant: Some(tenant.to_owned()), ..any.clone() };
        for (filter, offsets) in [
            (by_id("same"), vec![1, 2]),
            (by_id("same "), vec![4]),
            (by_id("SAME"), vec![]),
            (by_tenant("acme"), vec![1]),
            (by_tenant("acme "), vec![2]),
            (by_tenant(""), vec![4]),
        ] {
            let found = store.dead_letters(&filter).await.unwrap();
            let found: Vec<_> = found.iter().map(|letter| letter.offset).collect();
            assert_eq!(found, offsets, "{filter:?}");
        }
        assert_eq!(store.drop_dead(&by_id("same ")).await.unwrap(), 1);
        assert_eq!(store.dead_letters(&any).await.unwrap().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn many_and_long_keys_are_found() {
    with_store(|store, _| async move {
        let long = vec![b'k'; 100_000];
        park(
            &store,
            &[letter("", "a", 1, Some(&long)), letter("", "b", 2, Some(b"")), letter("", "c", 3, None)],
        )
        .await;
        let others: Vec<Vec<u8>> = (0..5000).map(|n| format!("{n}").into_bytes()).collect();
        let mut keys: Vec<&[u8]> = others.iter().map(Vec::as_slice).collect();
        keys.extend([&*long, b"".as_slice(), b"K"]);
        let mut claimed = store.claim(&consumer(), &[]).await.unwrap();
        let mut parked = store.parked_keys(&mut claimed.txn, &position(), &keys).await.unwrap();
        parked.sort_unstable();
        assert_eq!(parked, [vec![], long]);
        store.rollback(claimed.txn).await;
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_moved_to_another_database_parks_in_ours() {
    with_store(|store, _| async move {
        let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        sqlx::raw_sql("USE information_schema").execute(&mut *claimed.txn).await.unwrap();
        store.park(&mut claimed.txn, &consumer(), &[letter("", "a", 1, None)]).await.unwrap();
        store.commit(claimed.txn, None).await.unwrap();
        let any = DeadFilter { limit: 10, ..DeadFilter::default() };
        assert_eq!(store.dead_letters(&any).await.unwrap().len(), 1);
    })
    .await;
}
