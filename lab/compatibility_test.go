package lab

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
)

var update = flag.Bool("update", false, "write the table of incompatibilities in docs/scenarios.md")

// Incompatibility depends on the scenario only.
func TestIncompatibilityReasons(t *testing.T) {
	const pair, stream = "fabric: {kind: pair}\n", "workload: {kind: stream}\n"
	for _, c := range []struct{ text, want string }{
		{pair + stream, ""},
		{pair + "workload: {kind: stream, services: [ud]}\n", "soft-iWARP has no ud"},
		{pair + "workload: {kind: random}\n", "soft-iWARP has no xrc, uc, ud"},
		{pair + "workload: {kind: random, services: [rc, srq]}\n", ""},
		{pair + "workload: {kind: random, services: [rc], excuses: [gives_up]}\n", "connections may fail"},
		{pair + "workload: {kind: stream, pause: 1ms}\n", "its receivers post late"},
		{pair + "workload: {kind: stream, rnr_retries: 1}\n", "its receivers post late"},
		{pair + "workload: {kind: stream, timeout: 1ms, retries: 3}\n", ""},
		{pair + "workload: {kind: stream, mtu: [1024]}\n", "the path MTU"},
		{pair + "workload: {kind: stream, cm: true}\n", ""},
		{pair + "nic: {options: {icrc: false}}\n" + stream, "iWARP has no option icrc"},
		{pair + "nic: {options: {rate_control: false}}\n" + stream, "soft-iWARP has no option rate_control"},
		{pair + "nic: {defects: [AckCompletesRead]}\n" + stream, "cannot have the defect AckCompletesRead; it is a defect of softroce"},
		{pair + "events: [{psn: 7, do: drop}]\n" + stream, "name RoCE packets"},
		{pair + "events: [{nth: 7, do: drop}]\n" + stream, "name RoCE packets"},
		{pair + stream + "expect: {errors: {host0: [retry exceeded]}}\n", `it expects "retry exceeded"`},
		{pair + stream + "expect: {errors: {host0: [flushed, remote access]}}\n", ""},
		{pair + stream + "expect: {retransmits: {max: 0}}\n", "expect.retransmits needs a counter"},
		{pair + stream + "expect: {in: {sim: {retransmits: {max: 0}}}}\n", ""},
		{pair + stream + "expect: {marked: {min: 1}}\n", "with CE marks"},
		{pair + stream + "expect: {marked: {max: 0}}\n", ""},
		{pair + stream + "expect: {lost: {min: 1}}\n", "dropped at full queues"},
		{pair + "impair: [{loss: 1%}]\n" + stream + "expect: {lost: {min: 1}}\n", ""},
		{pair + "faults: [{at: 1ms, do: impair, set: {corrupt: 1%}}]\n" + stream + "expect: {lost: {min: 1}}\n", ""},
		{pair + "workload: {kind: stream, reconnect: true}\nexpect: {reconnects: {min: 1}}\n", "by exhausted retries"},
		{pair + "faults: [{at: 1ms, do: qp-error, on: [host1]}]\nworkload: {kind: stream, reconnect: true}\nexpect: {reconnects: {min: 1}}\n", ""},
		{pair + "impair: [{corrupt: 1%}]\nworkload: {kind: stream, reconnect: true}\nexpect: {reconnects: {min: 1}}\n", ""},
		{"fabric: {kind: fat-tree, hosts: 4, leaves: 2, spines: 1}\nimpair: [{on: [spine0], loss: 1%}]\n" + stream, "between switches"},
		{"fabric: {kind: fat-tree, hosts: 4, leaves: 2, spines: 1}\nimpair: [{on: [host0], loss: 1%}]\n" + stream, ""},
	} {
		s := parse(t, c.text)
		if own := Incompatibility(s, scenarios.Sim); own != "" {
			t.Errorf("%s: with its own NICs: %s", c.text, own)
		}
		got := Incompatibility(WithProvider(s, "softiwarp"), scenarios.Sim)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
	}
	for text, want := range map[string]string{
		"nic: {provider: softiwarp}\nfaults: [{at: 1ms, do: kill, on: [host1]}]\nexpect: {killed: [host1], errors: {host0: [flushed]}}\n": "detects that by exhausted retries",
		"nic: {provider: softiwarp, options: {markers: true}}\n":                                                                          "soft-RoCE has no option markers",
		"nic: {provider: softiwarp, defects: [NoFence]}\n":                                                                                "a defect of softiwarp",
		"nic: {provider: softiwarp}\n":                                                                                                    "",
		"nic: {provider: softiwarp}\nevents: [{offset: 7, do: reset}]\n":                                                                  "offsets in a TCP stream",
	} {
		s := parse(t, pair+text+stream)
		if own := Incompatibility(s, scenarios.NetNS); own != "" {
			t.Errorf("%s: with its own NICs: %s", text, own)
		}
		if got := Incompatibility(WithProvider(s, nics.Default), scenarios.NetNS); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	s := parse(t, pair+stream)
	if got := Incompatibility(s, scenarios.Sim, "NoFence"); !strings.Contains(got, "a defect of softiwarp") {
		t.Errorf("with an additional defect: %q", got)
	}
	if got := Incompatibility(s, scenarios.Sim, "AckCompletesRead"); got != "" {
		t.Errorf("with an additional defect: %q", got)
	}
	if got := Incompatibility(WithProvider(s, "mlx5"), scenarios.Sim); !strings.Contains(got, `no provider "mlx5"`) {
		t.Errorf("unknown provider: %q", got)
	}
}

// Without connections, a workload without a service uses reliable datagrams, and a
// workload that needs connections does not run.
func TestIncompatibilityOfDatagramNICs(t *testing.T) {
	const pair, stream = "fabric: {kind: pair}\n", "workload: {kind: stream}\n"
	for _, c := range []struct{ text, want string }{
		{pair + stream, ""},
		{pair + "workload: {kind: stream, services: [ud]}\n", ""},
		{pair + "workload: {kind: stream, services: [rc]}\n", "datagram-iWARP has no rc: there are no connections, and its reliable service is rd"},
		{pair + "workload: {kind: random}\n", "datagram-iWARP has no rc, srq, xrc, uc: "},
		{pair + "workload: {kind: calls}\n", "datagram-iWARP has no rc: "},
		{pair + "workload: {kind: stream, cm: true}\n", "datagram-iWARP has no rc: "},
		{pair + "workload: {kind: stream, reconnect: true}\n", "it reconnects, and datagram-iWARP has no connections"},
		{pair + "workload: {kind: stream, mtu: [1024]}\n", "uses the MTU of the link"},
		{pair + "workload: {kind: stream, services: [ud], mtu: [1024], bytes: 1000}\n", ""},
		{pair + "workload: {kind: stream, services: [ud], bytes: 7}\n", "too short to contain their number"},
		{pair + "workload: {kind: stream, bytes: 7}\n", ""},
		{pair + "workload: {kind: stream, pause: 1ms, rnr_retries: 1}\n", ""},
		{pair + "nic: {options: {icrc: false}}\n" + stream, "iWARP has no option icrc"},
		{pair + "nic: {options: {rate_control: false}}\n" + stream, "datagram-iWARP has no option rate_control"},
		{pair + "nic: {defects: [AckCompletesRead]}\n" + stream, "cannot have the defect AckCompletesRead; it is a defect of softroce"},
		{pair + "events: [{nth: 7, do: drop}]\n" + stream, ""},
		{pair + stream + "expect: {errors: {host0: [retry exceeded, rnr retry exceeded]}}\n", ""},
		{pair + stream + "expect: {retransmits: {min: 1}, marked: {min: 1}, lost: {min: 1}}\n", ""},
		{pair + "workload: {kind: stream, services: [ud]}\nexpect: {marked: {min: 1}}\n", "with CE marks"},
		{"fabric: {kind: fat-tree, hosts: 4, leaves: 2, spines: 1}\nimpair: [{on: [spine0], loss: 1%}]\n" + stream, ""},
	} {
		s := parse(t, c.text)
		if own := Incompatibility(s, scenarios.Sim); own != "" {
			t.Errorf("%s: with its own NICs: %s", c.text, own)
		}
		got := Incompatibility(WithProvider(s, "dgiwarp"), scenarios.Sim)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
	}
	for text, want := range map[string]string{
		"workload: {kind: stream, services: [rd]}\n": "soft-RoCE has no rd",
		"workload: {kind: stream, services: [ud]}\n": "",
		"workload: {kind: stream}\n":                 "",
	} {
		s := parse(t, pair+"nic: {provider: dgiwarp}\n"+text)
		if own := Incompatibility(s, scenarios.NetNS); own != "" {
			t.Errorf("%s: with its own NICs: %s", text, own)
		}
		if got := Incompatibility(WithProvider(s, nics.Default), scenarios.NetNS); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestWithProviderDoesNotChangeTheScenario(t *testing.T) {
	s := parse(t, "fabric: {kind: pair}\nworkload: {kind: stream}\nexpect: {max_time: 1s, in: {sim: {max_time: 1ms}}}\n")
	if WithProvider(s, nics.Default) != s {
		t.Error("WithProvider with its own provider returns another scenario")
	}
	other := WithProvider(s, "softiwarp")
	if other.NIC.Provider != "softiwarp" || other.ExpectOn(scenarios.Sim).MaxTime != other.Expect.MaxTime || s.NIC.Provider != "" || s.Expect.In == nil {
		t.Errorf("%+v of %+v", other, s)
	}
}

// The table in docs/scenarios.md has the incompatibilities of the built-in scenarios.
func TestIncompatibilitiesAreDocumented(t *testing.T) {
	const file, begin, end = "../docs/scenarios.md", "<!-- fits: go test ./lab -update -->\n", "<!-- end of fits -->\n"
	text := must.Get(os.ReadFile(file))(t)
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no markers for the table", file)
	}
	all := must.Get(scenarios.Builtin())(t)
	all = slices.DeleteFunc(all, func(s *scenarios.Scenario) bool { return s.Experiment != nil }) // they have a platform
	want := head + begin + incompatibilities(t, all) + end + tail
	if *update {
		must.Do(t, os.WriteFile(file, []byte(want), 0o644))
	} else if string(text) != want {
		t.Errorf("%s differs from the code; run: go test ./lab -update", file)
	}
}

// incompatibilities returns a table for each provider: the reasons, with the scenarios of each.
func incompatibilities(t *testing.T, all []*scenarios.Scenario) string {
	var b strings.Builder
	for _, p := range nics.All() {
		var run, reasons []string
		why := map[string][]string{}
		for _, s := range all {
			if s.NIC.Provider == p.Name || s.NIC.Provider == "" && p.Name == nics.Default {
				continue
			}
			on := map[scenarios.Tier]string{}
			for _, tier := range []scenarios.Tier{scenarios.Sim, scenarios.NetNS} {
				if s.RunsOn(tier) {
					on[tier] = Incompatibility(WithProvider(s, p.Name), tier)
				}
			}
			first := on[scenarios.Sim]
			if other, both := on[scenarios.NetNS]; both && other != first {
				t.Errorf("%s with %s: %q in simulation, %q in namespaces: the table has one column for both", s.Name, p.Name, first, other)
			}
			if first == "" {
				run = append(run, s.Name)
				continue
			}
			if why[first] == nil {
				reasons = append(reasons, first)
			}
			why[first] = append(why[first], s.Name)
		}
		slices.SortStableFunc(reasons, func(x, y string) int { return len(why[y]) - len(why[x]) })
		fmt.Fprintf(&b, "\nWith `%s`, of those written for other NICs, %d run: %s. The others do not:\n\n", p.Name, len(run), strings.Join(run, ", "))
		b.WriteString("| because | |\n|---|---|\n")
		for _, r := range reasons {
			fmt.Fprintf(&b, "| %s | %s |\n", r, strings.Join(why[r], ", "))
		}
	}
	return b.String() + "\n"
}
