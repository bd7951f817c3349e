//! Any text as the configuration of a WLAN: refused with its place, or a setup; of the medium
//! between simulated radios too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tm_link::wlan::Config;

fuzz_target!(|data: &[u8]| {
    let Ok(config) = serde_json::from_slice::<Config>(data) else {
        return;
    };
    let refused = [
        config.setup("medium").err(),
        config.setup_chosen("medium").err(),
    ];
    for error in refused.into_iter().flatten() {
        let message = error.to_string();
        assert!(message.starts_with("medium"), "{message}");
    }
});
