package bench

import "time"

// watchdog detects cases on a device of another host that hang: cases without a
// reply of the agent for a time, which slow cases have.
type watchdog struct {
	limit   time.Duration // maximum time without a reply
	end     time.Duration // maximum time of a case
	replies uint64        // at the last call of hung
}

// longestCase is the maximum duration of a case, as a multiple of its limit without
// a reply.
const longestCase = 10

func newWatchdog(limit, now time.Duration, replies uint64) *watchdog {
	return &watchdog{limit: limit, end: now + longestCase*limit, replies: replies}
}

// hung reports whether the case hangs. It is called once every limit, with the
// number of verb calls that have returned.
func (w *watchdog) hung(now time.Duration, replies uint64) bool {
	progress := replies != w.replies
	w.replies = replies
	return !progress || now >= w.end
}
