package window

import "slices"

// Awaited visits the peers that something waits for.
func (e *Engine) EachAwaitedPeer(visit func(peer int)) {
	for _, w := range e.order {
		for i := range w.targets {
			if t := &w.targets[i]; t.awaited() || w.exposed && t.completes == 0 && slices.Contains(w.posted, i) ||
				w.access == started && !t.open && slices.Contains(w.group, i) {
				visit(t.peer)
			}
		}
	}
}

// awaited reports whether operations or locks wait for a target.
func (t *target) awaited() bool {
	return t.pending > 0 || t.lock == asked || t.flushes != t.flushed
}
