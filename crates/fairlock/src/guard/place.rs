//! How a guard knows its lock and the data.

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use std::sync::Arc;

use crate::raw::RawLock;

/// A lock with its data.
///
/// # Safety
/// `raw` and `data` always return the same lock, and the data that it protects.
pub unsafe trait Lock {
    /// The lock without its data.
    type Raw: RawLock;
    /// What it protects.
    type Data: ?Sized;
    /// The lock without its data.
    fn raw(&self) -> &Self::Raw;
    /// What it protects.
    fn data(&self) -> *mut Self::Data;

    /// For a guard that borrows the lock; what it may do with the data is what the guard's name
    /// says.
    #[inline(always)]
    fn borrow<D>(&self) -> Borrowed<'_, Self::Data, Self::Raw, D> {
        // SAFETY: the data of this lock, and so not null.
        unsafe { Borrowed::new(self.raw(), NonNull::new_unchecked(self.data())) }
    }

    /// For a guard that owns an `Arc` of the lock.
    fn share(self: &Arc<Self>) -> Through<Arc<Self>, Self::Data> {
        Through::new(Arc::clone(self))
    }
}

/// How a guard knows its lock and the data.
///
/// # Safety
/// `raw` and `data` always return the same lock, and data that it protects, or a part of it, which
/// lives as long as this.
pub unsafe trait Place {
    /// The lock without its data.
    type Raw: RawLock;
    /// What the guard gives access to.
    type Data: ?Sized;
    /// The lock without its data.
    fn raw(&self) -> &Self::Raw;
    /// What the guard gives access to.
    fn data(&self) -> NonNull<Self::Data>;
}

/// The guard borrows the lock for so long.
#[diagnostic::on_unimplemented(message = "a guard that owns an `Arc` of its lock cannot be mapped")]
pub trait Borrows<'a>: Place<Raw: 'a> {
    /// The lock without its data.
    fn borrowed(&self) -> &'a Self::Raw;
}

/// All data that the lock protects, so that the guard may change how it holds the lock.
pub trait Whole: Place {
    /// Of a guard that only reads.
    type Reads: Whole<Raw = Self::Raw, Data = Self::Data>;
    /// Of a guard that only reads.
    fn into_reads(self) -> Self::Reads;
}

/// Of guards that read: access to all data.
pub struct Reading<'a, T: ?Sized>(PhantomData<&'a T>);
/// Of guards that write or may upgrade. Data of such a guard that is sent must also be `Sync`, as
/// the guard can become one that reads.
pub struct Writing<'a, T: ?Sized>(PhantomData<(&'a T, &'a mut T)>);
/// Of mapped guards: access to a part of the data, by such a reference.
pub struct Part<D>(PhantomData<D>);

/// How a guard that borrows its lock refers to it. `D` is the access that it stands for, which says
/// how lifetimes vary and what it takes to send it: [`Reading`], [`Writing`] or [`Part`].
pub struct Borrowed<'a, T: ?Sized, R, D> {
    lock: &'a R,
    data: NonNull<T>,
    access: PhantomData<D>,
}

// SAFETY: it is a `&R`, and gives no more access to the data than `D`, which says itself whether it
// may go to another thread.
unsafe impl<T: ?Sized, R: Sync, D: Send> Send for Borrowed<'_, T, R, D> {}
// SAFETY: a shared reference to it is a `&R` and a `&T`.
unsafe impl<T: ?Sized + Sync, R: Sync, D> Sync for Borrowed<'_, T, R, D> {}

impl<'a, T: ?Sized, R, D> Borrowed<'a, T, R, D> {
    /// # Safety
    /// It is data that `lock` protects, or a part of it, and the guard has that access to it.
    #[inline(always)]
    pub(super) unsafe fn new(lock: &'a R, data: NonNull<T>) -> Self {
        Borrowed { lock, data, access: PhantomData }
    }
}

// SAFETY: as `new` asks for.
unsafe impl<T: ?Sized, R: RawLock, D> Place for Borrowed<'_, T, R, D> {
    type Raw = R;
    type Data = T;
    #[inline(always)]
    fn raw(&self) -> &R {
        self.lock
    }
    #[inline(always)]
    fn data(&self) -> NonNull<T> {
        self.data
    }
}

impl<'a, T: ?Sized, R: RawLock, D> Borrows<'a> for Borrowed<'a, T, R, D> {
    #[inline(always)]
    fn borrowed(&self) -> &'a R {
        self.lock
    }
}

impl<'a, T: ?Sized, R: RawLock> Whole for Borrowed<'a, T, R, Reading<'a, T>> {
    type Reads = Self;
    fn into_reads(self) -> Self {
        self
    }
}

impl<'a, T: ?Sized, R: RawLock> Whole for Borrowed<'a, T, R, Writing<'a, T>> {
    type Reads = Borrowed<'a, T, R, Reading<'a, T>>;
    fn into_reads(self) -> Self::Reads {
        // SAFETY: the same data, and less access.
        unsafe { Borrowed::new(self.lock, self.data) }
    }
}

/// How a guard that has a pointer to its lock refers to it: an [`Arc`], or a reference.
pub struct Through<A, T: ?Sized> {
    lock: A,
    data: PhantomData<T>,
}

impl<A, T: ?Sized> Through<A, T> {
    pub(crate) fn new(lock: A) -> Self {
        Through { lock, data: PhantomData }
    }

    pub(crate) fn lock(&self) -> &A {
        &self.lock
    }

    pub(super) fn into_lock(self) -> A {
        self.lock
    }
}

// SAFETY: `Lock` promises that both belong together, and a pointer of these two kinds keeps both
// where they are.
unsafe impl<A: Deref<Target: Lock<Data = T>>, T: ?Sized> Place for Through<A, T> {
    type Raw = <A::Target as Lock>::Raw;
    type Data = T;
    #[inline]
    fn raw(&self) -> &Self::Raw {
        self.lock.raw()
    }
    #[inline]
    fn data(&self) -> NonNull<T> {
        // SAFETY: not null, as it is data of a lock.
        unsafe { NonNull::new_unchecked(self.lock.data()) }
    }
}

impl<'a, L: Lock<Data = T, Raw: 'a> + ?Sized, T: ?Sized> Borrows<'a> for Through<&'a L, T> {
    fn borrowed(&self) -> &'a L::Raw {
        self.lock.raw()
    }
}

impl<A: Deref<Target: Lock<Data = T>>, T: ?Sized> Whole for Through<A, T> {
    type Reads = Self;
    fn into_reads(self) -> Self {
        self
    }
}
