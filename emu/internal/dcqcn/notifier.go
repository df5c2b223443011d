package dcqcn

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// Notifier is the notification point of one flow: it turns congestion marks
// into congestion notification packets, no more than one each interval. The
// zero value has sent none.
type Notifier struct {
	last mono.Time
	sent bool
}

// Mark reports whether a mark seen now is answered by a CNP. The first is, at
// once: the sender is to hear of congestion as early as it can. An interval of
// zero answers every mark.
func (n *Notifier) OnMark(now mono.Time, interval time.Duration) bool {
	if n.sent && now.Sub(n.last) < interval {
		return false
	}
	n.last, n.sent = now, true
	return true
}
