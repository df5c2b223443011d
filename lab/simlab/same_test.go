package simlab

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // hundreds of small worlds are created and become garbage
	os.Exit(m.Run())
}

// manyFeatures uses most features of a scenario.
const manyFeatures = `
fabric: {kind: fat-tree, hosts: 6, leaves: 2, spines: 2, rails: 2, link: {rate: 10Gbit, ecn: {min: 20kB, max: 80kB, share: 20%}}}
impair:
  - {loss: 0.5%, jitter: 2us, duplicate: 0.5%}
  - {on: [host1], way: in, reorder: 1%, reorder_delay: 5us, corrupt: 0.5%}
events: [{on: [host2/rdma1], nth: 9, do: drop}]
faults:
  - {at: 100us, do: down, on: [host3/rdma0], for: 200us}
  - {at: 200us, do: impair, set: {on: [host4], loss: 5%}, for: 300us}
  - {at: 300us, do: down, on: [leaf0-rail0/port3], for: 200us}
  - {at: 600us, do: qp-error, on: [host5]}
workload: {kind: all-to-all, messages: 12, bytes: 8KiB, timeout: 1ms, reconnect: true}
expect: {delivered: any}
`

// manyFeaturesTCP is the same for NICs over TCP.
const manyFeaturesTCP = `
fabric: {kind: fat-tree, hosts: 6, leaves: 2, spines: 2, rails: 2, link: {rate: 10Gbit}}
nic: {provider: softiwarp}
impair:
  - {loss: 0.5%, jitter: 2us, duplicate: 0.5%}
  - {on: [host1], way: in, reorder: 1%, reorder_delay: 5us, corrupt: 0.2%}
events: [{on: [host2/rdma1], conn: 2, offset: 9000, do: drop}, {on: [host0/rdma0], conn: 1, offset: 30000, do: reset}]
faults:
  - {at: 4ms, do: down, on: [host3/rdma0], for: 200us}
  - {at: 5ms, do: impair, set: {on: [host4], loss: 5%}, for: 3ms}
  - {at: 6ms, do: down, on: [leaf0-rail0/port3], for: 200us}
  - {at: 500ms, do: qp-error, on: [host5]}
workload: {kind: all-to-all, messages: 12, bytes: 8KiB, think: 5ms, reconnect: true}
expect: {delivered: exactly-once}
`

// manyFeaturesUDP is the same for NICs without connections.
const manyFeaturesUDP = `
fabric: {kind: fat-tree, hosts: 6, leaves: 2, spines: 2, rails: 2, link: {rate: 10Gbit, ecn: {min: 20kB, max: 80kB, share: 20%}}}
nic: {provider: dgiwarp}
impair:
  - {loss: 2%, jitter: 2us, duplicate: 1%}
  - {on: [host1], way: in, reorder: 1%, reorder_delay: 5us, corrupt: 0.5%}
events: [{on: [host2/rdma1], psn: 9, time: 1, do: drop}]
faults:
  - {at: 100us, do: down, on: [host3/rdma0], for: 200us}
  - {at: 200us, do: impair, set: {on: [host4], loss: 5%}, for: 300us}
  - {at: 300us, do: down, on: [leaf0-rail0/port3], for: 200us}
  - {at: 30ms, do: qp-error, on: [host5]}
workload: {kind: all-to-all, services: [rd], messages: 40, bytes: 8KiB, think: 100us, timeout: 4ms}
expect: {delivered: any, errors: {host5: [flushed], "host*": [retry exceeded, flushed]}}
`

// runCaptured returns the result and the files of a run, without wall-clock times.
func runCaptured(t *testing.T, s *scenarios.Scenario, seed uint64, dir string) (result, capture []byte) {
	r := Run(context.Background(), s, lab.Options{Seed: seed, Dir: dir, Capture: cli.CaptureAll, Replay: "fabrictest run test"})
	if r.Verdict == report.Broken || len(r.Files) != 1 {
		t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
		return nil, nil
	}
	r.Wall = 0
	result, err := json.Marshal(r)
	if err != nil {
		t.Error(err)
	}
	capture, err = os.ReadFile(filepath.Join(dir, r.Files[0].Path))
	if err != nil || int64(len(capture)) != r.Files[0].Size || r.Files[0].Path != "test-sim/capture.pcapng.gz" {
		t.Errorf("%d bytes, %v, %+v", len(capture), err, r.Files[0])
	}
	return result, capture
}

// Concurrent runs do not affect each other.
func TestSameSeedGivesSameRun(t *testing.T) {
	for _, text := range []string{manyFeatures, manyFeaturesTCP, manyFeaturesUDP} {
		sameSeedSameRun(t, parse(t, text))
	}
}

func sameSeedSameRun(t *testing.T, s *scenarios.Scenario) {
	t.Helper()
	var wg sync.WaitGroup
	var results, captures [3][]byte
	for i := range results {
		dir := t.TempDir()
		wg.Go(func() { results[i], captures[i] = runCaptured(t, s, 7+uint64(i/2), dir) })
	}
	wg.Wait()
	if !bytes.Equal(results[1], results[0]) {
		t.Errorf("a run of the same seed has another result: %s", firstDifference(results[1], results[0]))
	}
	if !bytes.Equal(captures[1], captures[0]) {
		t.Error("a run of the same seed has another capture")
	}
	if bytes.Equal(captures[2], captures[0]) || bytes.Equal(results[2], results[0]) {
		t.Error("another seed gives the same run")
	}
	if len(captures[0]) < 10_000 {
		t.Errorf("a capture of %d bytes", len(captures[0]))
	}
}

func firstDifference(a, b []byte) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			from := max(0, i-80)
			return "…" + string(a[from:min(len(a), i+80)]) + "…, not …" + string(b[from:min(len(b), i+80)]) + "…"
		}
	}
	return "one is longer"
}

// Every tier takes the random numbers of a port and direction from Plan.RandSources.
func TestImpairmentsUseRandomSourcesOfPlan(t *testing.T) {
	const text = "fabric: {kind: pair}\nimpair: [{on: [host0], loss: 30%}]\nworkload: {kind: pingpong, messages: 40, timeout: 1ms, bytes: 64}\n"
	s := parse(t, text)
	r := Run(context.Background(), s, lab.Options{Seed: 3})
	plan := must.Get(lab.NewPlan(s, lab.Options{Seed: 3}))(t)
	pipe := must.Get(impair.NewPipe(plan.Ports[0].Out.Config, softroce.Dissector{}, plan.RandSources(0, lab.Out)))(t)
	l := cable(t, r, "host0/rdma0", "host1/rdma0")
	for range l.Packets {
		pipe.Apply(0, &pingDatagram, nil)
	}
	if got := pipe.Counters().Lost; got != l.Lost["loss"] || got == 0 {
		t.Errorf("of %d packets the simulation lost %d, the random numbers of the plan %d", l.Packets, l.Lost["loss"], got)
	}
}

// part selects the scenarios of both tests below. By default every third one runs, and every sixth
// with another provider.
var part = testutil.PartFlag()

func TestShippedScenariosPass(t *testing.T) {
	for i, s := range shipped(t) {
		if !part.Sample(i, 3) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			expectPass(t, resultOf(s))
		})
	}
}

func TestShippedScenariosPassWithOtherProviders(t *testing.T) {
	for k, p := range nics.All() {
		ran := 0
		for i, s := range shipped(t) {
			other := lab.WithProvider(s, p.Name)
			if other == s || lab.Incompatibility(other, scenarios.Sim) != "" {
				continue
			}
			ran++
			if !part.Sample(i+2*k, 6) {
				continue
			}
			t.Run(p.Name+"/"+s.Name, func(t *testing.T) {
				t.Parallel()
				expectPass(t, Run(context.Background(), other, lab.Options{}))
			})
		}
		if ran < 4 {
			t.Errorf("only %d scenarios run with %s", ran, p.Name)
		}
	}
}

func shipped(t *testing.T) []*scenarios.Scenario {
	t.Helper()
	all := must.Get(scenarios.Builtin())(t)
	return slices.DeleteFunc(all, func(s *scenarios.Scenario) bool { return s.Experiment != nil || !s.RunsOn(scenarios.Sim) })
}

// results has functions that return the result of a shipped scenario, by its name.
var results sync.Map

// resultOf returns the result of a shipped scenario with default options. The scenario runs once,
// and several tests check the result.
func resultOf(s *scenarios.Scenario) *report.Result {
	run, _ := results.LoadOrStore(s.Name, sync.OnceValue(func() *report.Result { return Run(context.Background(), s, lab.Options{}) }))
	return run.(func() *report.Result)()
}

func expectPass(t *testing.T, r *report.Result) {
	t.Helper()
	t.Logf("%v virtual time, %v wall-clock time", r.Elapsed, r.Wall)
	if r.Verdict == report.Passed {
		return
	}
	t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
	for _, c := range r.Checks {
		t.Logf("%v %s: want %s, got %s", c.OK, c.Name, c.Want, c.Got)
	}
}
