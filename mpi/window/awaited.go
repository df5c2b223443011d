package window

import "slices"

// EachAwaitedPeer calls visit for each peer that an open epoch or a pending operation of a
// window waits for: for its replies, its Complete or its Post.
func (e *Engine) EachAwaitedPeer(visit func(peer int)) {
	for _, w := range e.ordered {
		for i := range w.targets {
			if t := &w.targets[i]; t.isAwaited() || w.exposed && t.unusedCompletes == 0 && slices.Contains(w.exposedTo, i) ||
				w.access == startEpoch && !t.postReceived && slices.Contains(w.group, i) {
				visit(t.peer)
			}
		}
	}
}

// isAwaited reports whether operations, a lock request or a flush wait for the target.
func (t *target) isAwaited() bool {
	return t.pending > 0 || t.lock == lockRequested || t.flushesSent != t.flushesAcked
}
