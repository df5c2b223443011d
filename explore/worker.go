package explore

import "slices"

// worker explores depth-first, and gives work to other workers that have none.
type worker struct {
	walker
	search   *search
	frontier *frontier
	stop     func()
}

// run explores until no worker has work, or the exploration is stopped.
func (w *worker) run() {
	for {
		item, ok := w.frontier.take()
		if !ok {
			return
		}
		w.start(item.trail, item.frame)
		for len(w.frames) > 0 && !w.search.stopping.Load() {
			if w.frontier.wanted.Load() > 0 {
				w.share()
			}
			w.step()
		}
		for i := range w.frames {
			w.give(i)
		}
	}
}

// step takes one step, or removes the last frame if it has none left.
func (w *worker) step() {
	if w.frames[len(w.frames)-1].done() {
		w.pop()
		return
	}
	s := w.search
	m, t, err := w.advance()
	s.edges.Add(1)
	depth := len(w.trail) + 1
	if err != nil {
		w.fail(t, err)
		return
	}
	isNew, isShallower := s.visited.add(m.Fingerprint(), depth)
	if !isNew && (s.MaxDepth == 0 || !isShallower) {
		w.discard(m)
		return
	}
	s.noteDepth(int64(depth))
	steps := m.Enabled(w.spare())
	if len(steps) == 0 {
		if isNew {
			s.runs.Add(1)
		}
		if err := finish(m, steps); err != nil {
			w.fail(t, err)
		}
	}
	if len(steps) == 0 || depth == s.MaxDepth {
		w.discard(m)
	} else {
		w.push(m, t, steps)
	}
	if isNew && s.enough() {
		w.stop()
	}
}

// fail notes that a step has failed, and stops the exploration.
func (w *worker) fail(t taken, err error) {
	w.search.fail(append(w.trail, t), err)
	w.stop()
}

// share gives the work nearest to the initial state to another worker, and keeps the last frame.
func (w *worker) share() {
	for i := range w.frames[:len(w.frames)-1] {
		if !w.frames[i].done() {
			w.give(i)
			return
		}
	}
}

// give gives the rest of a frame away.
func (w *worker) give(i int) {
	f := &w.frames[i]
	if f.done() {
		return
	}
	trail := slices.Clone(w.trail[:len(w.trail)-len(w.frames)+1+i])
	w.frontier.give(work{trail, *f})
	*f = frame{}
}
