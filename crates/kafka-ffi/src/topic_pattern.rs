//! Names of topics by regular expression, as librdkafka reads them: it uses the system's own, and so do we.

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::ptr;

/// A regular expression (POSIX, extended) for names of topics. Begins with `^`, which is how librdkafka tells it from a name.
pub struct TopicPattern {
    text: String,
    compiled: Box<libc::regex_t>,
}

// SAFETY: POSIX wants `regexec` to be safe in several threads at once, and `regfree` may run in any thread; nothing else
// touches the expression once it is compiled.
unsafe impl Send for TopicPattern {}
// SAFETY: as above.
unsafe impl Sync for TopicPattern {}

impl TopicPattern {
    /// Whether librdkafka takes this for a pattern, and not for a name.
    #[must_use]
    pub fn is_one(topic: &str) -> bool {
        topic.starts_with('^')
    }

    /// Reads it, or says what is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        if !Self::is_one(text) {
            return Err("a pattern begins with ^".to_owned());
        }
        let pattern = CString::new(text).map_err(|_| "there is a zero byte in it".to_owned())?;
        let mut compiled = Box::new(MaybeUninit::<libc::regex_t>::zeroed());
        let flags = libc::REG_EXTENDED | libc::REG_NOSUB;
        // SAFETY: there is room for an expression at the first pointer, and the text ends with a zero.
        let code = unsafe { libc::regcomp(compiled.as_mut_ptr(), pattern.as_ptr(), flags) };
        if code != 0 {
            return Err(reason(code, compiled.as_ptr()));
        }
        // SAFETY: it was compiled, so it is initialised.
        let compiled = unsafe { compiled.assume_init() };
        Ok(Self { text: text.to_owned(), compiled })
    }

    /// As it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a topic has such a name.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        let Ok(topic) = CString::new(topic) else { return false };
        // SAFETY: the expression is compiled, the text ends with a zero, and no places of matches are asked for.
        unsafe { libc::regexec(&raw const *self.compiled, topic.as_ptr(), 0, ptr::null_mut(), 0) == 0 }
    }
}

impl Drop for TopicPattern {
    fn drop(&mut self) {
        // SAFETY: the expression is compiled, and a drop happens once.
        unsafe { libc::regfree(&raw mut *self.compiled) };
    }
}

impl std::fmt::Debug for TopicPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TopicPattern").field(&self.text).finish()
    }
}

fn reason(code: libc::c_int, compiled: *const libc::regex_t) -> String {
    let mut text: [c_char; 256] = [0; 256];
    // SAFETY: this is the expression that `regcomp` has refused with this code; no more than the given size is written.
    unsafe { libc::regerror(code, compiled, text.as_mut_ptr(), text.len()) };
    // SAFETY: it ends with a zero, and the last byte was zero before.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_as_librdkafka_does_it() {
        let orders = TopicPattern::new("^orders\\..*").expect("a pattern");
        assert!(orders.matches("orders.new") && orders.matches("orders."));
        assert!(!orders.matches("orders") && !orders.matches("my.orders.new") && !orders.matches("ordersX"));
        let either = TopicPattern::new("^(stock|orders)$").expect("a pattern");
        assert!(either.matches("stock") && !either.matches("stocks") && !either.matches("st\0ck"));
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_reason() {
        assert!(!TopicPattern::is_one("orders"));
        for wrong in ["orders", "^orders(", "^a\0b", "^[a", "^a{2,1}"] {
            assert!(!TopicPattern::new(wrong).expect_err(wrong).is_empty());
        }
    }
}
