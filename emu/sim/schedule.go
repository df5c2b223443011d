package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// Schedule is what is done to a network and when, as data.
type Schedule struct {
	Steps []Step `json:"steps,omitempty" yaml:"steps,omitempty"`
	Flaps []Flap `json:"flaps,omitempty" yaml:"flaps,omitempty"`
}

// Step does what it names at one time, in the order of its fields. Ports go by
// their names; Down and Up take those of trunks too.
type Step struct {
	At   mono.Time `json:"at" yaml:"at"`
	Down []string  `json:"down,omitempty" yaml:"down,omitempty"`
	Up   []string  `json:"up,omitempty" yaml:"up,omitempty"`
	// Heal comes before Partition and Block, so that one step can replace what
	// holds.
	Heal      bool       `json:"heal,omitempty" yaml:"heal,omitempty"`
	Partition [][]string `json:"partition,omitempty" yaml:"partition,omitempty"`
	Block     []PortPair `json:"block,omitempty" yaml:"block,omitempty"`
	Unblock   []PortPair `json:"unblock,omitempty" yaml:"unblock,omitempty"`
}

// PortPair is the way from one port to another.
type PortPair struct {
	From string `json:"from" yaml:"from"`
	To   string `json:"to" yaml:"to"`
}

// Flap takes the link of a port down and up again, Times times, beginning at
// From. Each spell lasts its time and up to Jitter more, by chance.
type Flap struct {
	Port    string        `json:"port" yaml:"port"`
	From    mono.Time     `json:"from" yaml:"from"`
	DownFor time.Duration `json:"down_for" yaml:"down_for"`
	UpFor   time.Duration `json:"up_for" yaml:"up_for"`
	Jitter  time.Duration `json:"jitter,omitempty" yaml:"jitter,omitempty"`
	Times   int           `json:"times" yaml:"times"`
}

// Schedule arranges for s to be done. If any of it makes no sense it reports all
// that does not, and does nothing.
func (n *Net) Schedule(s Schedule) error {
	var errs []error
	for i := range s.Steps {
		if err := n.checkStep(&s.Steps[i]); err != nil {
			errs = append(errs, fmt.Errorf("net %s: steps[%d]: %w", n.cfg.Name, i, err))
		}
	}
	for i := range s.Flaps {
		if err := n.checkFlap(&s.Flaps[i]); err != nil {
			errs = append(errs, fmt.Errorf("net %s: flaps[%d]: %w", n.cfg.Name, i, err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, step := range s.Steps {
		n.w.AtFunc(step.At, func() { n.do(&step) })
	}
	for i, f := range s.Flaps {
		n.w.At(f.From, &flapping{Flap: f, port: n.byName[f.Port], stream: fmt.Sprintf("flap%d", i)}, 0)
	}
	return nil
}

func (n *Net) checkStep(s *Step) error {
	errs := []error{n.checkTime(s.At)}
	for _, name := range append(append([]string(nil), s.Down...), s.Up...) {
		if n.carrier(name) == nil {
			errs = append(errs, fmt.Errorf("no port is named %q, and no trunk", name))
		}
	}
	var names []string
	for _, g := range s.Partition {
		names = append(names, g...)
	}
	for _, way := range append(append([]PortPair(nil), s.Block...), s.Unblock...) {
		names = append(names, way.From, way.To)
	}
	for _, name := range names {
		errs = append(errs, n.checkPort(name))
	}
	in := make(map[string]int)
	for i, g := range s.Partition {
		for _, name := range g {
			if j, twice := in[name]; twice {
				errs = append(errs, fmt.Errorf("partition: port %q is in groups %d and %d", name, j, i))
			}
			in[name] = i
		}
	}
	return errors.Join(errs...)
}

func (n *Net) checkFlap(f *Flap) error {
	errs := []error{n.checkTime(f.From), n.checkPort(f.Port)}
	if f.DownFor <= 0 || f.UpFor <= 0 || f.Jitter < 0 {
		errs = append(errs, fmt.Errorf("down_for %v, up_for %v, jitter %v: the first two must be positive, the last not negative", f.DownFor, f.UpFor, f.Jitter))
	}
	if f.Times <= 0 {
		errs = append(errs, fmt.Errorf("times: %d: a flap must end, or the world never would", f.Times))
	}
	return errors.Join(errs...)
}

func (n *Net) checkTime(t mono.Time) error {
	if t < n.w.now {
		return fmt.Errorf("%v has passed: it is %v", t, n.w.now)
	}
	return nil
}

func (n *Net) checkPort(name string) error {
	if n.byName[name] == nil {
		return fmt.Errorf("no port is named %q", name)
	}
	return nil
}

// carrier is what can lose its link and get it back.
type carrier interface {
	SetDown()
	SetUp()
}

// carrier returns the port or the trunk of that name, nil if there is neither.
func (n *Net) carrier(name string) carrier {
	if p := n.byName[name]; p != nil {
		return p
	}
	if t := n.trunkNames[name]; t != nil {
		return t
	}
	return nil
}

func (n *Net) do(s *Step) {
	for _, name := range s.Down {
		n.carrier(name).SetDown()
	}
	for _, name := range s.Up {
		n.carrier(name).SetUp()
	}
	if s.Heal {
		n.Heal()
	}
	if len(s.Partition) > 0 {
		groups := make([][]*Port, len(s.Partition))
		for i, g := range s.Partition {
			for _, name := range g {
				groups[i] = append(groups[i], n.byName[name])
			}
		}
		n.Partition(groups...)
	}
	for _, way := range s.Block {
		n.Block(n.byName[way.From], n.byName[way.To])
	}
	for _, way := range s.Unblock {
		n.Unblock(n.byName[way.From], n.byName[way.To])
	}
}

// flapping is a Flap under way.
type flapping struct {
	Flap
	port   *Port
	stream string
}

// HandleEvent ends one spell and begins the next.
func (f *flapping) HandleEvent(now mono.Time, _ uint64) {
	spell := f.UpFor
	if f.port.Up() {
		f.port.SetDown()
		spell = f.DownFor
	} else {
		f.port.SetUp()
		if f.Times--; f.Times == 0 {
			return
		}
	}
	w := f.port.net.w
	w.At(now.Add(spell+below(w.Rand(f.port.net.stream(f.port.cfg.Name, f.stream)), f.Jitter+1)), f, 0)
}
