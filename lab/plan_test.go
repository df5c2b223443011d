package lab

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/scenarios"
)

// parse parses a scenario; it adds the first lines.
func parse(t testing.TB, text string) *scenarios.Scenario {
	t.Helper()
	text = "version: 1\nname: test\ntitle: A test\n" + text
	if !strings.Contains(text, "\nworkload:") {
		text += "\nworkload: {kind: stream, messages: 10}\n"
	}
	s, err := scenarios.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s
}

func plan(t testing.TB, text string) *Plan {
	t.Helper()
	p := must.Get(NewPlan(parse(t, text), Options{}))(t)
	return p
}

// port returns the index of a port.
func (p *Plan) port(t testing.TB, name string) int {
	t.Helper()
	i := slices.IndexFunc(p.Ports, func(x Port) bool { return x.Name == name })
	if i < 0 {
		t.Fatalf("no port %s", name)
	}
	return i
}

func TestPlanAssignsImpairmentsToDirections(t *testing.T) {
	p := plan(t, `
seed: 7
fabric: {kind: star, hosts: 4, rails: 2}
impair:
  - {loss: 1%}
  - {on: [host1], way: in, delay: 5us, from: 1ms, until: 2ms}
  - {on: [host*/rdma1], way: both, corrupt: 0.5%}
  - {on: [switch0-rail0/port2], mark: 3%}
events:
  - {on: [host0/rdma0], psn: 9, time: 2, do: drop}
  - {on: [host0/rdma0], way: both, nth: 3, do: delay, delay: 1us}
`)
	if p.Seed != 7 || len(p.Ports) != 8 || p.Limit != scenarios.DefaultLimit {
		t.Fatalf("seed %d, %d ports, limit %v", p.Seed, len(p.Ports), p.Limit)
	}
	loss := impair.Spec{LossPPM: 10_000}
	delay := impair.Spec{Delay: 5 * time.Microsecond, From: 1e6, Until: 2e6}
	corrupt := impair.Spec{CorruptPPM: 5000}
	mark := impair.Spec{MarkPPM: 30_000}
	for name, want := range map[string][2][]impair.Spec{
		"host0/rdma0": {{loss}, nil},
		"host0/rdma1": {{loss, corrupt}, {corrupt}},
		"host1/rdma0": {{loss}, {delay}},
		"host1/rdma1": {{loss, corrupt}, {delay, corrupt}},
		// Out of the switch's port is in to the host's.
		"host2/rdma0": {{loss}, {mark}},
	} {
		port := &p.Ports[p.port(t, name)]
		if !slices.Equal(port.Out.Specs, want[0]) || !slices.Equal(port.In.Specs, want[1]) {
			t.Errorf("%s: out %+v, in %+v", name, port.Out.Specs, port.In.Specs)
		}
	}
	port := &p.Ports[p.port(t, "host0/rdma0")]
	if !slices.Equal(port.Out.EventIndexes, []int{0, 1}) || !slices.Equal(port.In.EventIndexes, []int{1}) {
		t.Errorf("events %v out, %v in", port.Out.EventIndexes, port.In.EventIndexes)
	}
	if e := port.Out.Events[0]; *e.Match.Seq != 9 || e.Occurrence != 2 || e.Action.Kind != impair.Drop {
		t.Errorf("%+v", e)
	}
	if e := port.In.Events[0]; *e.Match.Nth != 3 || e.Action.Delay != time.Microsecond {
		t.Errorf("%+v", e)
	}
}

func TestImpairsCable(t *testing.T) {
	p := plan(t, `
fabric: {kind: star, hosts: 4}
impair: [{on: [host1], loss: 1%}]
faults:
  - {at: 1ms, do: down, on: [host2], for: 1ms}
  - {at: 1ms, do: impair, set: {on: [host3], loss: 5%}}
`)
	for host, want := range []bool{false, true, false, true} {
		cable := p.Ports[p.PortsOf(host)[0]].Cable
		if got := p.ImpairsCable(cable); got != want {
			t.Errorf("host%d: touched %v", host, got)
		}
	}
}

func TestPlanHasTrunkPorts(t *testing.T) {
	p := plan(t, `
fabric: {kind: fat-tree, hosts: 4, leaves: 2, spines: 2}
impair:
  - {on: [leaf0/port2], loss: 1%}
  - {on: [spine1], loss: 2%}
faults: [{at: 1ms, do: down, on: [leaf1/port3], for: 1ms}]
`)
	if len(p.Ports) != 4+4 {
		t.Fatalf("%d ports", len(p.Ports))
	}
	up := p.Ports[p.port(t, "leaf0/port2")]
	if up.Host != -1 || up.Out.Specs[0].LossPPM != 10_000 || len(up.In.Specs) != 0 {
		t.Errorf("%+v", up)
	}
	for _, name := range []string{"leaf0/port3", "leaf1/port3"} { // their other ends are spine1
		if at := p.Ports[p.port(t, name)]; len(at.Out.Specs) != 0 || at.In.Specs[0].LossPPM != 20_000 {
			t.Errorf("%+v", at)
		}
	}
	if got := p.Steps[0].Ports; !slices.Equal(got, []int{p.port(t, "leaf1/port3")}) {
		t.Errorf("the fault is done to %v", got)
	}
}

func TestStepsAreSortedByTime(t *testing.T) {
	p := plan(t, `
fabric: {kind: star, hosts: 4}
impair: [{on: [host3], loss: 1%}]
faults:
  - {at: 10ms, do: down, on: [host1], for: 2ms, times: 3, every: 5ms}
  - {at: 12ms, do: partition, groups: [[host0], [host1, host2]], for: 1ms}
  - {at: 1ms, do: impair, set: {on: [host3], loss: 50%}}
  - {at: 2ms, do: impair, set: {on: [host3], way: both, delay: 1us}, for: 1ms}
  - {at: 30ms, do: kill, on: [host2]}
expect: {killed: [host2], delivered: any}
`)
	var got []string
	for i := range p.Steps {
		s := &p.Steps[i]
		text := s.At.String() + " " + p.DescribeStep(s)
		if s.Undo {
			text += " undone"
		}
		got = append(got, text)
	}
	want := []string{
		"1ms host3/rdma0 impairments replaced",
		"2ms host3/rdma0 impairments replaced",
		"3ms host3/rdma0 impairments replaced undone",
		"10ms host1/rdma0 down",
		"12ms host1/rdma0 down undone",
		"12ms partition of host0/rdma0 | host1/rdma0, host2/rdma0",
		"13ms partition of host0/rdma0 | host1/rdma0, host2/rdma0 undone",
		"15ms host1/rdma0 down",
		"17ms host1/rdma0 down undone",
		"20ms host1/rdma0 down",
		"22ms host1/rdma0 down undone",
		"30ms host2 killed",
	}
	if !slices.Equal(got, want) {
		t.Errorf("steps\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// The second replacement puts back what the first one set, not what the
	// scenario began with.
	back := p.Steps[2].Set
	if len(back) != 2 || back[0].Direction != Out || back[0].Specs[0].LossPPM != 500_000 || back[1].Direction != In || len(back[1].Specs) != 0 {
		t.Errorf("put back: %+v", back)
	}
}

func TestPlanErrorsHavePositions(t *testing.T) {
	const fabric = "fabric: {kind: star, hosts: 4}\n"
	for text, want := range map[string]string{
		fabric + `faults:
  - {at: 1ms, do: down, on: [host1], for: 5ms}
  - {at: 3ms, do: down, on: [host*], for: 1ms}
`: "test.yaml:7:5: faults[1]: begins at 3ms while faults[0] is active: host1/rdma0 down",
		fabric + `faults:
  - {at: 1ms, do: partition, groups: [[host0]]}
  - {at: 3ms, do: partition, groups: [[host1]]}
`: "faults[1]: begins at 3ms while faults[0] is active",
		fabric + `faults:
  - {at: 1ms, do: kill, on: [host1]}
  - {at: 3ms, do: freeze, on: [host1], for: 1ms}
expect: {killed: [host1]}
`: "faults[1]: at 3ms: host1 was killed by faults[0] before",
		fabric + "faults: [{at: 1ms, do: impair, set: {on: [host1], loss: 5%, way: both}, for: 2ms}, {at: 2ms, do: impair, set: {loss: 1%}}]\n": "is active",
	} {
		_, err := NewPlan(parse(t, text), Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %q", err, want)
		}
	}
}

func TestPlanValidatesScenariosBuiltInGo(t *testing.T) {
	base := func() scenarios.Scenario {
		return scenarios.Scenario{Name: "made", Fabric: scenarios.Fabric{Kind: scenarios.Star, Hosts: 2}}
	}
	for want, change := range map[string]func(*scenarios.Scenario){
		"kind heap":      func(s *scenarios.Scenario) { s.Fabric.Kind = "heap" },
		"workload.ranks": func(s *scenarios.Scenario) { s.Workload.Ranks = 3 },
		"impair[0].on[0]": func(s *scenarios.Scenario) {
			s.Impair = []scenarios.Impairment{{PortSelector: scenarios.PortSelector{On: []string{"host9"}}, Loss: 1}}
		},
		"impair[0]: loss":    func(s *scenarios.Scenario) { s.Impair = []scenarios.Impairment{{Loss: 2_000_000}} },
		"events[0]: action":  func(s *scenarios.Scenario) { s.Events = []scenarios.Event{{Do: "vanish", Nth: 1}} },
		"faults[0].do":       func(s *scenarios.Scenario) { s.Faults = []scenarios.Fault{{Do: "melt"}} },
		"faults[0].on: kill": func(s *scenarios.Scenario) { s.Faults = []scenarios.Fault{{Do: scenarios.Kill}} },
		"faults[0].for": func(s *scenarios.Scenario) {
			s.Faults = []scenarios.Fault{{Do: scenarios.Kill, On: []string{"host1"}, For: 1}}
		},
		"faults[0].set":    func(s *scenarios.Scenario) { s.Faults = []scenarios.Fault{{Do: scenarios.SetImpair}} },
		"faults[0].groups": func(s *scenarios.Scenario) { s.Faults = []scenarios.Fault{{Do: scenarios.Partition}} },
		"is not a host": func(s *scenarios.Scenario) {
			s.Faults = []scenarios.Fault{{Do: scenarios.Freeze, On: []string{"leaf0/port1"}}}
			s.Fabric = scenarios.Fabric{Kind: scenarios.FatTree, Hosts: 2, Leaves: 2, Spines: 1}
		},
	} {
		s := base()
		change(&s)
		if _, err := NewPlan(&s, Options{}); err == nil || !strings.Contains(err.Error(), "made: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestSeedFor(t *testing.T) {
	with := &scenarios.Scenario{Seed: 5}
	for _, tc := range []struct {
		o    Options
		s    *scenarios.Scenario
		want uint64
	}{
		{Options{}, &scenarios.Scenario{}, defaultSeed},
		{Options{}, with, 5},
		{Options{Seed: 9}, with, 9},
	} {
		if got := tc.o.SeedFor(tc.s); got != tc.want {
			t.Errorf("seed %d, want %d", got, tc.want)
		}
	}
}
