package explore

import (
	"cmp"
	"fmt"
	"slices"
)

// Replay takes the steps of a path, and calls each, unless it is nil, before every step. It
// returns the failure of the machine.
func Replay(m Machine, p Path, each func(Step)) (err error) {
	defer recoverNotRepeatable(&err)
	_, err = replay(m, p, each)
	return err
}

// replay is Replay, returns the steps too, and panics if the path is not one of the machine.
func replay(m Machine, p Path, each func(Step)) (trail []taken, err error) {
	var sc script
	for {
		steps := m.Enabled(nil)
		if len(p) == 0 || len(steps) == 0 {
			return trail, finish(m, steps)
		}
		c := p[0]
		if c.Of != len(steps) || c.Picked < 0 || c.Picked >= c.Of || c.Kind != steps[c.Picked].Kind {
			panic(notRepeatableError(fmt.Sprintf("step %d of the path is %v, and the machine has the steps %v", len(trail), c, steps)))
		}
		if each != nil {
			each(steps[c.Picked])
		}
		sc.begin(p[1:])
		err = cmp.Or(sc.take(m, steps[c.Picked]), m.Check())
		trail = append(trail, taken{step: steps[c.Picked], picked: c.Picked, of: c.Of, inner: slices.Clone(sc.path[:sc.next])})
		if err != nil {
			return trail, err
		}
		p = p[min(1+sc.next, len(p)):]
	}
}

// finish returns the failure of a run that ends in this state.
func finish(m Machine, steps []Step) error {
	if f, ok := m.(Finisher); ok && len(steps) == 0 {
		return f.Finish()
	}
	return nil
}

// script is a Chooser that picks as a path says, and the first alternative after its end.
type script struct {
	path Path
	next int
}

func (s *script) begin(p Path) { s.path, s.next = append(s.path[:0], p...), 0 }

// take takes a step of a machine, which chooses by the script.
func (s *script) take(m Machine, step Step) error {
	if c, ok := m.(ChoosingMachine); ok {
		c.SetChooser(s)
	}
	return m.Take(step)
}

// Choose implements Chooser.
func (s *script) Choose(kind string, n int) int {
	if n == 1 {
		return 0
	}
	if s.next == len(s.path) {
		s.path = append(s.path, Choice{kind, 0, n})
	}
	c := s.path[s.next]
	s.next++
	if c.Kind != kind || c.Of != n {
		panic(notRepeatableError(fmt.Sprintf("the choice %v is %s of %d now", c, kind, n)))
	}
	return c.Picked
}

// nextWord returns the choices that follow p in lexical order; nil after the last.
func nextWord(p Path) Path {
	for n := len(p); n > 0; n-- {
		if last := p[n-1]; last.Picked+1 < last.Of {
			next := slices.Clone(p[:n])
			next[n-1].Picked++
			return next
		}
	}
	return nil
}

// notRepeatableError is the panic of a machine that does not repeat a path.
type notRepeatableError string

func (n notRepeatableError) Error() string {
	return "explore: the run cannot be repeated: " + string(n)
}

// recoverNotRepeatable returns a panic notRepeatableError as an error.
func recoverNotRepeatable(err *error) {
	if r := recover(); r != nil {
		n, ok := r.(notRepeatableError)
		if !ok {
			panic(r)
		}
		*err = n
	}
}

// space is the space of states of a machine.
type space struct {
	initial func() Machine
	clones  bool
}

func newSpace(initial func() Machine) *space {
	_, clones := initial().(Cloner)
	return &space{initial, clones}
}

// repeat returns a machine after steps that it has taken before.
func (s *space) repeat(trail []taken) Machine {
	m := s.initial()
	for _, t := range trail {
		retake(m, t)
	}
	return m
}

// retake takes a step that did not fail before.
func retake(m Machine, t taken) {
	var sc script
	sc.begin(t.inner)
	if err := sc.take(m, t.step); err != nil {
		panic(notRepeatableError(fmt.Sprintf("%v fails now: %v", t.step, err)))
	}
}
