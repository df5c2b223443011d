package window

import "slices"

// Awaited visits the peers that something waits for.
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

// awaited reports whether operations or locks wait for a target.
func (t *target) isAwaited() bool {
	return t.pending > 0 || t.lock == lockRequested || t.flushesSent != t.flushesAcked
}
