package lab

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
)

// parse parses a scenario, with the first lines added.
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
		// The switch's output is the host's input.
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
		cable := p.Ports[host].Cable // ports of hosts come first
		if got := p.ImpairsCable(cable); got != want {
			t.Errorf("host%d: impaired %v", host, got)
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
		t.Errorf("the fault is at %v", got)
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
	// The second fault restores the impairments of the first one, not those of the scenario.
	back := p.Steps[2].Set
	if len(back) != 2 || back[0].Direction != Out || back[0].Specs[0].LossPPM != 500_000 || back[1].Direction != In || len(back[1].Specs) != 0 {
		t.Errorf("restored: %+v", back)
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

func TestNICSetupFromScenario(t *testing.T) {
	s := parse(t, "fabric: {kind: star, hosts: 4}\nnic: {defects: [AckCompletesRead, cm.IgnoreCommEst], on: [\"host[12]\"], options: {icrc: false, rate_control: false}}\nworkload: {kind: calls, messages: 10}\n")
	p, err := Provider(s)
	if err != nil || p.Name != nics.Default {
		t.Fatalf("%+v, %v", p, err)
	}
	for host, defective := range map[string]bool{"host0": false, "host1": true, "host2": true, "host3": false} {
		got := must.Get(setupOf(s, p, host, []string{"FixedHopLimit"}))(t)
		want := []string{"FixedHopLimit"}
		if defective {
			want = append(want, "AckCompletesRead", "cm.IgnoreCommEst")
		}
		if !slices.Equal(got.Defects, want) || !reflect.DeepEqual(got.Options, nics.Options{"icrc": false, "rate_control": false, "max_cm_connections": maxCMConnections}) {
			t.Errorf("%s: %+v", host, got)
		}
		if _, err := NICs(s, host, "FixedHopLimit"); err != nil {
			t.Error(err)
		}
	}
}

func TestNICsRejectsInvalidSettings(t *testing.T) {
	for want, nic := range map[string]scenarios.NIC{
		`nic.provider: no provider "mlx5": there are softroce, softiwarp, dgiwarp`: {Provider: "mlx5"},
		"nic.options: datagram-iWARP has no option markers; it has reliable, ":     {Provider: "dgiwarp", Options: map[string]bool{"markers": true}},
		"nic.defects[1]: no defect": {Defects: []string{"AckCompletesRead", "NoSuchDefect"}, On: []string{"host9"}},
		"nic.defects[0]: soft-iWARP NICs cannot have the defect AckCompletesRead; it is a defect of softroce": {Provider: "softiwarp", Defects: []string{"AckCompletesRead"}},
		"nic.options: soft-RoCE has no option markers":                                                        {Options: map[string]bool{"markers": true}},
		"nic.options: soft-iWARP has no option icrc":                                                          {Provider: "softiwarp", Options: map[string]bool{"icrc": false}},
	} {
		if _, err := NICs(&scenarios.Scenario{Name: "made", NIC: nic}, "host0"); err == nil || !strings.Contains(err.Error(), "made: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Datagram NICs are reliable if the workload uses rd or names no service, and have its retry times.
func TestDatagramNICSetupFromScenario(t *testing.T) {
	retry := func(timeout, total, rnr time.Duration) nics.Options {
		return nics.Options{"reliable": true, "isolate_peers": true, "retry_timeout": timeout, "retry_total": total, "rnr_total": rnr}
	}
	for text, want := range map[string]nics.Options{
		"{kind: stream, services: [ud]}":                                           {},
		"{kind: stream, services: [rd]}":                                           retry(0, 0, 0),
		"{kind: stream, timeout: 8ms, retries: 1, rnr_retries: 0, rnr_timer: 1ms}": retry(8388608, 2*8388608, 1280*time.Microsecond),
		"{kind: random, services: [rc]}":                                           {}, // rejected
	} {
		s := parse(t, "fabric: {kind: pair}\nnic: {provider: dgiwarp}\nworkload: "+text+"\n")
		p := must.Get(Provider(s))(t)
		if got, err := setupOf(s, p, "host0", nil); err != nil || !reflect.DeepEqual(got.Options, want) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	s := parse(t, "fabric: {kind: pair}\nworkload: {kind: stream, services: [rd]}\n")
	if p, _ := Provider(s); p != nil {
		if got, _ := setupOf(s, p, "host0", nil); len(got.Options) != 0 {
			t.Error("a RoCE NIC has options of datagram NICs")
		}
	}
}

// The schema of scenarios has every provider of the registry, in the same order.
func TestScenariosNameAllProviders(t *testing.T) {
	f, _ := reflect.TypeFor[scenarios.NIC]().FieldByName("Provider")
	if got, want := f.Tag.Get("enum"), strings.Join(nics.Names(), " "); got != want {
		t.Errorf("scenarios.NIC.Provider has the enum %q, want %q", got, want)
	}
}
