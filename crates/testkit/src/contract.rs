//! The definition of a contract: one list of cases.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

/// One case of a contract, checked on its own store.
///
/// The macros create a test of each. With another harness, an async runtime for example, iterate over
/// [`SESSION_STORE_CASES`](crate::SESSION_STORE_CASES) or [`CONTEXT_STORE_CASES`](crate::CONTEXT_STORE_CASES) and run
/// them there.
pub struct Case<S: ?Sized> {
    name: &'static str,
    run: fn(Arc<S>) -> BoxFuture<'static, ()>,
}

impl<S: ?Sized> Case<S> {
    pub(crate) const fn new(name: &'static str, run: fn(Arc<S>) -> BoxFuture<'static, ()>) -> Self {
        Self { name, run }
    }

    /// Returns the promise, as the name of a test.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Checks the case on an empty store that nothing else uses; panics if it is broken.
    pub fn run(&self, fresh: Arc<S>) -> BoxFuture<'static, ()> {
        (self.run)(fresh)
    }
}

impl<S: ?Sized> fmt::Debug for Case<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The input of a case: a pair of an empty store and a value that has to outlive it, or `None` if the store's server
/// is missing and the test has been reported as skipped.
#[doc(hidden)]
pub trait Fresh {
    /// The store.
    type Store;
    /// The value that has to outlive it.
    type Kept;

    /// Returns the pair.
    fn pair(self) -> Option<(Self::Store, Self::Kept)>;
}

impl<S, K> Fresh for (S, K) {
    type Store = S;
    type Kept = K;

    fn pair(self) -> Option<(S, K)> {
        Some(self)
    }
}

impl<S, K> Fresh for Option<(S, K)> {
    type Store = S;
    type Kept = K;

    fn pair(self) -> Option<(S, K)> {
        self
    }
}

/// Makes of one list of cases the table, and the macro that expands to a test for each.
macro_rules! contract {
    (
        $dollar:tt
        $(#[$table_doc:meta])*
        const $table:ident: $store:ident;
        $(#[$macro_doc:meta])*
        macro $contract:ident, run by $run:ident;
        $($module:ident { $($case:ident,)* })*
    ) => {
        $(#[$table_doc])*
        pub const $table: &[$crate::Case<dyn $store>] = &[
            $($($crate::Case::new(stringify!($case), |store| Box::pin($module::$case(store))),)*)*
        ];

        /// Runs one case on a fresh store; the other part of the pair is dropped after the store.
        #[doc(hidden)]
        pub fn $run<F: $crate::Fresh>(case: &str, fresh: impl Future<Output = F>)
        where
            F::Store: $store + 'static,
        {
            let case = $table.iter().find(|known| known.name() == case).unwrap();
            let Some((store, kept)) = futures_executor::block_on(fresh).pair() else { return };
            futures_executor::block_on(case.run(std::sync::Arc::new(store)));
            drop(kept);
        }

        $(#[$macro_doc])*
        #[macro_export]
        macro_rules! $contract {
            ($dollar module:ident, $dollar fresh:expr) => {
                mod $dollar module {
                    #[allow(unused_imports, reason = "what makes a store may be named in full")]
                    use super::*;
                    $($(
                        #[test]
                        fn $case() {
                            $crate::$run(stringify!($case), $dollar fresh);
                        }
                    )*)*
                }
            };
        }
    };
}

pub(crate) use contract;
