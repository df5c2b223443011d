package explore

import (
	"context"
	"fmt"
)

// findLivelock searches a finished space for a cycle of steps without progress, if the machine
// reports progress. It returns whether it has searched all of the space.
//
// It searches depth-first along steps without progress, in which a step to a state of the stack
// closes a cycle. Steps with progress lead to states from which it searches later.
func (s *search) findLivelock(ctx context.Context) (finished bool) {
	if _, ok := s.initial().(Progresser); !ok {
		return true
	}
	l := &livelock{walker: walker{space: s.space}, roots: [][]taken{nil}, onStack: map[[16]byte]bool{}}
	for n := len(l.roots); n > 0; n = len(l.roots) {
		trail := l.roots[n-1]
		l.roots = l.roots[:n-1]
		if cycle := l.search(ctx, trail); cycle != nil {
			s.fail(cycle, fmt.Errorf("%w: the last steps lead back to a state without progress", ErrLivelock))
			return true
		}
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}

// livelock is the state of findLivelock.
type livelock struct {
	walker
	roots       [][]taken // the ways to states where a search begins
	searched    visited
	onStack     map[[16]byte]bool
	fingerprint [][16]byte // by frame
}

// search searches from the state after a trail.
func (l *livelock) search(ctx context.Context, trail []taken) (cycle []taken) {
	m := l.space.repeat(trail)
	fp := m.Fingerprint()
	if isNew, _ := l.searched.add(fp, 0); !isNew {
		return nil
	}
	l.begin(trail, m, m.Enabled(nil))
	l.enter(fp)
	for len(l.frames) > 0 && ctx.Err() == nil {
		if l.frames[len(l.frames)-1].done() {
			l.leave()
			continue
		}
		m, t, _ := l.advance() // no step of the space fails
		fp := m.Fingerprint()
		switch {
		case m.(Progresser).Progressed():
			if !l.searched.has(fp) {
				l.roots = append(l.roots, append(append([]taken(nil), l.trail...), t))
			}
			l.discard(m)
		case l.onStack[fp]:
			return append(l.trail, t)
		default:
			if isNew, _ := l.searched.add(fp, 0); !isNew {
				l.discard(m)
				continue
			}
			l.push(m, t, m.Enabled(l.spare()))
			l.enter(fp)
		}
	}
	return nil
}

// enter notes that a state was put on the stack.
func (l *livelock) enter(fp [16]byte) {
	l.onStack[fp] = true
	l.fingerprint = append(l.fingerprint, fp)
}

// leave removes the last state from the stack.
func (l *livelock) leave() {
	last := len(l.fingerprint) - 1
	delete(l.onStack, l.fingerprint[last])
	l.fingerprint = l.fingerprint[:last]
	l.pop()
}
