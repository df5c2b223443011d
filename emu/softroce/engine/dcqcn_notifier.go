package engine

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// cnpNotifier is the notification point of one flow: it decides which CE-marked packets are
// answered by a CNP, at most one per interval. The zero value has sent none.
type cnpNotifier struct {
	last mono.Time
	sent bool
}

// OnMark reports whether a marked packet that is received now is answered by a CNP. The
// first always is. An interval of zero answers every mark.
func (n *cnpNotifier) OnMark(now mono.Time, interval time.Duration) bool {
	if n.sent && now.Sub(n.last) < interval {
		return false
	}
	n.last, n.sent = now, true
	return true
}
