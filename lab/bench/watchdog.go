package bench

import "time"

// watchdog decides when a case on a device of another host hangs. A case that makes
// progress slowly, as on a busy machine, does not.
type watchdog struct {
	limit   time.Duration // without a reply of the agent
	end     time.Duration // of any case
	replies uint64        // at the last look
}

// longestCase is how many times its limit without a reply a case may take in all.
const longestCase = 10

func newWatchdog(limit, now time.Duration, replies uint64) *watchdog {
	return &watchdog{limit: limit, end: now + longestCase*limit, replies: replies}
}

// hung reports whether the case hangs. It is asked once every limit, with the number of
// verb calls that have returned.
func (w *watchdog) hung(now time.Duration, replies uint64) bool {
	progress := replies != w.replies
	w.replies = replies
	return !progress || now >= w.end
}
