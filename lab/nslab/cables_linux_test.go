package nslab

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// runOnCables runs a shipped scenario with cables in shared memory, which needs no namespaces.
func runOnCables(t *testing.T, name string, opts lab.Options) *report.Result {
	t.Helper()
	for _, s := range must.Get(scenarios.Builtin())(t) {
		if s.Name == name {
			s.Fabric.Cable = scenarios.SharedMemory
			return Run(t.Context(), s, opts)
		}
	}
	t.Fatalf("no scenario %s", name)
	return nil
}

// Impairments, events, groups, timed faults and several rails have the same effects as with namespaces.
func TestScenariosPassOnCablesInSharedMemory(t *testing.T) {
	for _, name := range []string{"clean-ipv4", "loss-5-percent", "exact-events", "multi-rail", "dgiwarp-rd-damage", "peer-killed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runOnCables(t, name, lab.Options{})
			for tries := 3; tries > 0 && r.Verdict != report.Passed; tries-- { // a busy machine may exceed its bounds
				t.Logf("%s: %s", r.Verdict, r.Reason)
				r = runOnCables(t, name, lab.Options{})
			}
			passed(t, r)
		})
	}
}

func TestCablesAreCountedAndCaptured(t *testing.T) {
	dir := t.TempDir()
	r := runOnCables(t, "loss-5-percent", lab.Options{Dir: dir, Capture: cli.CaptureAll})
	var packets, lost uint64
	for i := range r.Links {
		packets += r.Links[i].Packets
		lost += r.Links[i].Lost["loss"]
	}
	if packets == 0 || lost == 0 {
		t.Errorf("%d packets, %d lost; %s %s", packets, lost, r.Verdict, r.Reason)
	}
	fabric := false
	for _, f := range r.Files {
		fabric = fabric || strings.Contains(f.Path, "fabric") && f.Size > 1000
	}
	if !fabric {
		t.Errorf("no capture of the fabric: %+v", r.Files)
	}
}

// A packet that is lost where it leaves a host counts, whichever end of the cable is read first.
func TestPacketsOfACableAreCountedAtTheSender(t *testing.T) {
	out, in := cableDirection{packets: 100, bytes: 6000}, cableDirection{packets: 90, bytes: 5400}
	var outFirst, inFirst, toSwitch report.Link
	out.countPackets(lab.Out, &outFirst)
	in.countPackets(lab.In, &outFirst)
	in.countPackets(lab.In, &inFirst)
	out.countPackets(lab.Out, &inFirst)
	in.countPackets(lab.In, &toSwitch)
	for name, c := range map[string]struct {
		got           report.Link
		packets, size uint64
	}{"sender first": {outFirst, 100, 6000}, "receiver first": {inFirst, 100, 6000}, "from a switch": {toSwitch, 90, 5400}} {
		if c.got.Packets != c.packets || c.got.Bytes != c.size {
			t.Errorf("%s: %d packets of %d bytes, want %d of %d", name, c.got.Packets, c.got.Bytes, c.packets, c.size)
		}
	}
}

// A cable in shared memory leaves no descriptor behind, and impairs nothing without a switch.
func TestCableTestbed(t *testing.T) {
	text := "version: 1\nname: test\ntitle: A test\nfabric: {kind: star, hosts: 3, cable: shm}\nworkload: {kind: all-to-all}\n"
	plan := must.Get(lab.NewPlan(must.Get(scenarios.Parse("test.yaml", []byte(text)))(t), lab.Options{}))(t)
	for _, userSpace := range []bool{false, true} {
		bed := must.Get(Open(plan, TestbedOptions{UserSpace: userSpace}))(t)
		must.Do(t, bed.Begin(time.Now()))
		if bed.Start("host0") != nil || len(bed.CableFiles()) != 1 {
			t.Errorf("hosts have namespaces, or %d cables", len(bed.CableFiles()))
		}
		if err := bed.SetLink("host1", false); (err == nil) != userSpace {
			t.Errorf("with a switch %v: SetLink: %v", userSpace, err)
		}
		if err := bed.Impair(plan, "host*"); (err == nil) != userSpace {
			t.Errorf("with a switch %v: Impair: %v", userSpace, err)
		}
		must.Do(t, bed.Close())
	}
	links, _ := os.ReadDir("/proc/self/fd")
	for _, l := range links {
		if to, err := os.Readlink("/proc/self/fd/" + l.Name()); err == nil && strings.Contains(to, "fabrictest-cable") {
			t.Errorf("descriptor %s is %s", l.Name(), to)
		}
	}
}

func TestCablesInSharedMemoryRefuseWhatTheyLack(t *testing.T) {
	for name, want := range map[string]string{"iwarp-clean": "TCP", "fat-tree": "several switches"} {
		if r := runOnCables(t, name, lab.Options{}); r.Verdict == report.Passed || !strings.Contains(r.Reason+r.Detail, want) {
			t.Errorf("%s: %s: %s %s", name, r.Verdict, r.Reason, r.Detail)
		}
	}
}
