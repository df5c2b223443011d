package explore

import "slices"

// taken is a step of a run.
type taken struct {
	step       Step
	picked, of int
	inner      Path // choices inside of the step
}

// appendTrail appends the choices of steps to a path.
func appendTrail(p Path, trail []taken) Path {
	for _, t := range trail {
		p = append(append(p, Choice{t.step.Kind, t.picked, t.of}), t.inner...)
	}
	return p
}

// frame is a state with the alternatives that are left to explore.
type frame struct {
	m     Machine // in this state; nil if machines are not copied
	steps []Step
	next  int  // index of the next step to take
	inner Path // the choices inside of it; the first alternatives after these
}

// done reports whether no alternative is left.
func (f *frame) done() bool { return f.next >= len(f.steps) }

// walker walks the tree of runs. It has a stack of frames, each of which is one step of the last.
type walker struct {
	space   *space
	frames  []frame
	trail   []taken // from the initial state to the last frame
	current Machine // in the state of the last frame, unless machines are copied; nil if repeating is needed
	free    Machine // to reuse
	script  script
}

// start puts a state on the empty stack.
func (w *walker) start(trail []taken, f frame) {
	w.frames, w.trail, w.current = append(w.frames[:0], f), append(w.trail[:0], trail...), nil
}

// begin puts a state on the empty stack, with a machine in it.
func (w *walker) begin(trail []taken, m Machine, steps []Step) {
	w.start(trail, frame{steps: steps})
	if w.space.clones {
		w.frames[0].m = m
	} else {
		w.current = m
	}
}

// advance takes the next step of the last frame, and returns the machine in its new state. The
// error is that of the machine.
func (w *walker) advance() (m Machine, t taken, err error) {
	f := &w.frames[len(w.frames)-1]
	m = w.machine(f)
	t = taken{step: f.steps[f.next], picked: f.next, of: len(f.steps)}
	w.script.begin(f.inner)
	err = w.script.take(m, t.step)
	t.inner = slices.Clone(w.script.path)
	if f.inner = nextWord(w.script.path); f.inner == nil {
		f.next++
	}
	if err == nil {
		err = m.Check()
	}
	return m, t, err
}

// machine returns a machine in the state of the last frame, which the caller may change.
func (w *walker) machine(f *frame) (m Machine) {
	if f.m != nil {
		if _, chooses := f.m.(ChoosingMachine); !chooses && f.next == len(f.steps)-1 {
			m, f.m = f.m, nil // the last use
			return m
		}
		m, w.free = f.m.(Cloner).Clone(w.free), nil
		return m
	}
	if m, w.current = w.current, nil; m == nil {
		m = w.space.repeat(w.trail)
	}
	return m
}

// push adds the state that a step has led to.
func (w *walker) push(m Machine, t taken, steps []Step) {
	f := frame{steps: steps}
	if w.space.clones {
		f.m = m
	} else {
		w.current = m
	}
	w.frames, w.trail = append(w.frames, f), append(w.trail, t)
}

// pop removes the last frame.
func (w *walker) pop() {
	n := len(w.frames) - 1
	if m := w.frames[n].m; m != nil {
		w.discard(m)
	}
	w.frames[n].m, w.current = nil, nil
	w.frames = w.frames[:n]
	if n > 0 {
		w.trail = w.trail[:len(w.trail)-1]
	}
}

// spare returns the memory of a former frame for the steps of the next one.
func (w *walker) spare() []Step {
	if n := len(w.frames); n < cap(w.frames) {
		return w.frames[:n+1][n].steps[:0]
	}
	return nil
}

// discard says that a machine is not needed any more.
func (w *walker) discard(m Machine) {
	if w.space.clones {
		w.free = m
	}
}
