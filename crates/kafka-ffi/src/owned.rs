//! Something of librdkafka's that belongs to us.

use std::ptr::NonNull;

/// Destroys what it holds when it is dropped.
pub(crate) struct Owned<T> {
    pointer: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// `None` for null.
    ///
    /// # Safety
    /// `pointer` must be null, or valid and nobody else's to destroy, and `destroy` must be the way to destroy it.
    pub(crate) unsafe fn new(pointer: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Option<Self> {
        NonNull::new(pointer).map(|pointer| Self { pointer, destroy })
    }

    /// Valid as long as this is.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.pointer.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: whoever made it has promised that it is ours to destroy in this way; a drop happens once.
        unsafe { (self.destroy)(self.pointer.as_ptr()) };
    }
}
