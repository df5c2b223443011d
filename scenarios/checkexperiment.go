package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// checkExperiment checks the section "experiment".
func (c *checker) checkExperiment() {
	const at, why = "experiment", "an experiment runs on its platform"
	c.rejectKeys("", why, "fabric", "nic", "impair", "events", "faults", "workload", "expect")
	for i, t := range c.s.Tiers {
		if t != Sim {
			c.fail(fmt.Sprintf("tiers[%d]", i), "%s: an experiment runs in simulation only", t)
		}
	}
	if c.unreadable(at) {
		return
	}
	e := c.s.Experiment
	if !c.checkAxis(at+".vary", &e.Vary) || !c.checkVariants(at, e) {
		return
	}
	if len(e.Figures) == 0 {
		c.fail(at+".figures", "an empty list: name a published result")
	}
	for i := range e.Figures {
		key := fmt.Sprintf("%s.figures[%d]", at, i)
		c.checkMeasure(key+".measure", e, &e.Figures[i].Measure)
		c.checkWithin(key+".measure", e, &e.Figures[i].Measure)
		c.checkPublished(key+".published", e, &e.Figures[i])
	}
}

// checkAxis checks that the axis has one key, with ascending values, and reports whether it is so.
func (c *checker) checkAxis(key string, a *Axis) bool {
	var given []string
	fields := a.fields()
	all := make([]string, 0, len(fields))
	for _, f := range fields {
		all = append(all, f.name)
		if f.values.Len() > 0 {
			given = append(given, f.name)
		}
	}
	if len(given) != 1 {
		c.fail(key, "%d axes: give one of %s", len(given), strings.Join(all, ", "))
		return false
	}
	points := a.Points()
	for i := range points[1:] {
		if points[i].X() >= points[i+1].X() {
			c.fail(fmt.Sprintf("%s.%s[%d]", key, given[0], i+1), "the values must ascend")
			return false
		}
	}
	return true
}

// checkVariants checks the workload of each variant with its parameters, and reports whether all
// can run.
func (c *checker) checkVariants(at string, e *Experiment) bool {
	before := len(c.errs)
	if len(e.Variants) == 0 {
		c.fail(at+".variants", "is empty: name a variant, as in variants: {all: {}}")
	}
	if key := at + ".communication_of"; c.has(key) {
		c.checkVariant(key, e, e.CommunicationOf)
	}
	axis := e.Vary.Name()
	c.rejectKeys(at, "vary has it", axis)
	for _, name := range e.VariantNames() {
		key := join(at+".variants", name)
		c.rejectKeys(key, "vary has it", axis)
		if name == "" || len(name) > 40 || strings.ContainsAny(name, "\r\n") {
			c.fail(key, "%s is no name: write one line of at most 40 bytes", quoteShort(name))
		}
		for _, x := range e.Vary.Points() {
			if where, err := c.checkSetting(at, key, e.Setting(name, x)); err != nil {
				c.fail(where, "%s", err)
				break
			}
		}
	}
	return len(c.errs) == before
}

// checkSetting returns an error if the workload of a variant does not exist, or cannot run with the
// settings s, and where in the file the mistake is. at is the key of the section experiment, key
// that of the variant in it.
func (c *checker) checkSetting(at, key string, s Settings) (where string, err error) {
	where = key
	for _, section := range []string{at, key} {
		if c.has(section + ".workload") {
			where = section + ".workload"
		}
	}
	if s.Program != "" {
		return key, checkProgram(&s)
	}
	if s.Connections > 0 {
		return key, errors.New("connections are those of a program over verbs: name one with program")
	}
	if s.Workload == "" {
		return where, errors.New("the workload is missing: name one here, or for all variants in experiment")
	}
	wl, err := work.Find(s.Workload)
	if err != nil {
		return where, err
	}
	if s.Ranks == 0 {
		return key, errors.New("the number of ranks is missing: give it here, in experiment, or in vary")
	}
	if s.Communication > 0 && (s.Compute > 0 || c.s.Experiment.CommunicationOf == "") {
		return key, errors.New("communication needs communication_of in experiment, and instead of compute")
	}
	if s.Hosts > 0 && (s.PerHost > 0 || s.Ranks%s.Hosts != 0) {
		return key, fmt.Errorf("%d ranks on %d hosts: give a number of hosts that divides the ranks, without per_host", s.Ranks, s.Hosts)
	}
	var choices coll.Choices
	algorithms, _ := coll.SplitFiles(s.Collectives) // files are read when the experiment runs
	if err := choices.UnmarshalText([]byte(algorithms)); err != nil {
		return key, err
	}
	return where, wl.Check(s.Ranks, s.Params())
}

// checkProgram checks the settings of a variant that runs a program over verbs (s.Program) instead
// of a workload: the size of messages, which for a ping-pong must be a multiple of 8.
func checkProgram(s *Settings) error {
	switch {
	case s.Workload != "":
		return fmt.Errorf("there are a workload, %s, and a program, %s: give one of them", s.Workload, s.Program)
	case s.Bytes == 0:
		return errors.New("the program needs the size of messages, bytes")
	case s.Program != "both-ways" && s.Bytes%8 != 0:
		return fmt.Errorf("a ping-pong of %d bytes: it needs a multiple of 8", s.Bytes)
	}
	return nil
}

// RanksPerHost returns how many ranks share a host: PerHost, or what follows from Hosts.
func (s *Settings) RanksPerHost() int {
	if s.Hosts > 0 {
		return s.Ranks / s.Hosts
	}
	return s.PerHost
}

// Params returns the parameters of the workload.
func (s *Settings) Params() work.Params {
	return work.Params{
		Class: work.Class(s.Class), Iterations: s.Iterations, Bytes: int(s.Bytes), Compute: s.Compute, Variation: s.Variation,
		Collective: work.Collective{Operation: s.Operation, Warmup: s.Warmup, Groups: s.Groups, MIF: s.MIF, Late: s.Late},
	}
}

// checkMeasure checks the variants and the point of a measure.
func (c *checker) checkMeasure(key string, e *Experiment, m *Measure) {
	variants := map[string]string{"of": m.Of, "from": m.From, "to": m.To}
	needed, others := []string{"from", "to"}, []string{"of"}
	if m.Kind == Value {
		needed, others = others, needed
	}
	c.rejectKeys(key, m.Kind+" takes "+strings.Join(needed, " and "), others...)
	for _, k := range needed {
		if name, at := variants[k], join(key, k); !c.has(at) {
			c.fail(at, "is missing: name a variant")
		} else {
			c.checkVariant(at, e, name)
		}
	}
	if at := join(key, "beyond"); c.has(at) {
		if !slices.Contains([]string{Reduction, Increase, Ratio, Difference}, m.Kind) {
			c.fail(at, "%s is no comparison that could be subtracted from another", m.Kind)
		}
		c.checkVariant(join(at, "from"), e, m.Beyond.From)
		c.checkVariant(join(at, "to"), e, m.Beyond.To)
	}
	axis := e.Vary.Name()
	for _, f := range e.Vary.fields() {
		if f.name != axis {
			c.rejectKeys(key, "the x axis is "+axis, f.name)
		}
	}
	switch m.Kind {
	case Crossover, Until, BestAt:
		c.rejectKeys(key, m.Kind+" is a value of the x axis", axis, "over")
		return
	}
	if c.has(join(key, axis)) == c.has(key+".over") {
		c.fail(key, "give either %s, or over for all of them", axis)
	} else if m.Over == "" && !slices.Contains(e.Vary.Points(), m.Point) {
		c.fail(join(key, axis), "vary does not have this value")
	}
}

// checkVariant checks that a variant exists.
func (c *checker) checkVariant(key string, e *Experiment, name string) {
	if _, ok := e.Variants[name]; !ok {
		c.fail(key, "no variant %s%s", quoteShort(name), suggestion(name, e.VariantNames()))
	}
}

// checkWithin checks the range of the x axis that counts for a measure.
func (c *checker) checkWithin(at string, e *Experiment, m *Measure) {
	key := at + ".within"
	if !c.has(key) || !c.checkAxis(key, &m.Within) {
		return
	}
	ends := m.Within.Points()
	switch {
	case m.Within.Name() != e.Vary.Name() || len(ends) != 2:
		c.fail(key, "give two values of the x axis, %s", e.Vary.Name())
	case c.has(join(at, e.Vary.Name())):
		c.fail(key, "the measure is of one value of the x axis")
	case len(e.Vary.Within(&m.Within)) == 0:
		c.fail(key, "vary has no value between these")
	}
}

// checkPublished checks the value of a figure and its unit.
func (c *checker) checkPublished(key string, e *Experiment, f *Figure) {
	p := &f.Published
	switch {
	case (p.Value != nil) == (p.Range != nil):
		c.fail(key, "give either value or range")
	case p.Range != nil && (len(p.Range) != 2 || p.Range[0] > p.Range[1]):
		c.fail(key+".range", "give two numbers, the smaller first")
	case p.Range != nil && p.Op != "" && p.Op != "=":
		c.fail(key+".op", "%s takes a value, and not a range", p.Op)
	}
	unit := ""
	switch f.Measure.Kind {
	case Reduction, Increase:
		unit = "%"
	case Ratio:
		unit = "x"
	case Crossover, Until, BestAt:
		unit = e.Vary.Unit()
	}
	if unit != "" && p.Unit != unit {
		c.fail(key+".unit", "%s: the unit of this %s is %s", quoteShort(p.Unit), f.Measure.Kind, unit)
	}
}
