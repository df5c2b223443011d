package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// Schedule lists changes to a network and their times.
type Schedule struct {
	Steps []Step `json:"steps,omitempty" yaml:"steps,omitempty"`
	Flaps []Flap `json:"flaps,omitempty" yaml:"flaps,omitempty"`
}

// Step applies its changes at one time, in the order of its fields. Ports are
// identified by name; Down and Up accept trunk names too.
type Step struct {
	At   mono.Time `json:"at" yaml:"at"`
	Down []string  `json:"down,omitempty" yaml:"down,omitempty"`
	Up   []string  `json:"up,omitempty" yaml:"up,omitempty"`
	// Heal comes before Partition and Block, so that one step can replace a
	// partition.
	Heal      bool       `json:"heal,omitempty" yaml:"heal,omitempty"`
	Partition [][]string `json:"partition,omitempty" yaml:"partition,omitempty"`
	Block     []PortPair `json:"block,omitempty" yaml:"block,omitempty"`
	Unblock   []PortPair `json:"unblock,omitempty" yaml:"unblock,omitempty"`
}

// PortPair is the direction from one port to another.
type PortPair struct {
	From string `json:"from" yaml:"from"`
	To   string `json:"to" yaml:"to"`
}

// Flap takes the link of a port down and up again, Times times, starting at
// From. A random time up to Jitter is added to each DownFor and UpFor.
type Flap struct {
	Port    string        `json:"port" yaml:"port"`
	From    mono.Time     `json:"from" yaml:"from"`
	DownFor time.Duration `json:"down_for" yaml:"down_for"`
	UpFor   time.Duration `json:"up_for" yaml:"up_for"`
	Jitter  time.Duration `json:"jitter,omitempty" yaml:"jitter,omitempty"`
	Times   int           `json:"times" yaml:"times"`
}

// Schedule validates s and schedules all of it. If any part is invalid it
// returns all errors and schedules nothing.
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
		n.w.AtFunc(step.At, func() { n.applyStep(&step) })
	}
	for i, f := range s.Flaps {
		n.w.At(f.From, &activeFlap{Flap: f, port: n.byName[f.Port], randName: fmt.Sprintf("flap%d", i)}, 0)
	}
	return nil
}

func (n *Net) checkStep(s *Step) error {
	errs := []error{n.checkTime(s.At)}
	for _, name := range append(append([]string(nil), s.Down...), s.Up...) {
		if n.linkByName(name) == nil {
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
		errs = append(errs, fmt.Errorf("times: %d: must be positive", f.Times))
	}
	return errors.Join(errs...)
}

func (n *Net) checkTime(t mono.Time) error {
	if t < n.w.now {
		return fmt.Errorf("%v is in the past: the time is %v", t, n.w.now)
	}
	return nil
}

func (n *Net) checkPort(name string) error {
	if n.byName[name] == nil {
		return fmt.Errorf("no port is named %q", name)
	}
	return nil
}

// linkSetter is a port or a trunk, whose link can be set down and up.
type linkSetter interface {
	SetDown()
	SetUp()
}

// linkByName returns the port or trunk of that name, nil if there is neither.
func (n *Net) linkByName(name string) linkSetter {
	if p := n.byName[name]; p != nil {
		return p
	}
	if t := n.trunkNames[name]; t != nil {
		return t
	}
	return nil
}

func (n *Net) applyStep(s *Step) {
	for _, name := range s.Down {
		n.linkByName(name).SetDown()
	}
	for _, name := range s.Up {
		n.linkByName(name).SetUp()
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

// activeFlap is a running Flap.
type activeFlap struct {
	Flap
	port     *Port
	randName string
}

// HandleEvent toggles the link and schedules the next change.
func (f *activeFlap) HandleEvent(now mono.Time, _ uint64) {
	delay := f.UpFor
	if f.port.Up() {
		f.port.SetDown()
		delay = f.DownFor
	} else {
		f.port.SetUp()
		if f.Times--; f.Times == 0 {
			return
		}
	}
	w := f.port.net.w
	w.At(now.Add(delay+randBelow(w.Rand(f.port.net.randName(f.port.cfg.Name, f.randName)), f.Jitter+1)), f, 0)
}
