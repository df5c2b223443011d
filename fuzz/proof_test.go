package fuzz_test

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/mutant"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// enabledDefects are the defects of the devices that are opened. Only tests that prove that a
// target can fail set them.
var enabledDefects []string

// defect gives a device its defects.
func defect[P any](t testing.TB, policy *P, set func(policy *P, name string) bool) {
	t.Helper()
	for _, name := range enabledDefects {
		if !set(policy, name) {
			t.Fatalf("no defect %s", name)
		}
	}
}

// trial is a test that may fail without its parent's failing.
type trial struct {
	testing.TB
	failure string
}

func (t *trial) Helper() {}

func (t *trial) Name() string                      { return t.TB.Name() }
func (t *trial) Log(...any)                        {}
func (t *trial) Logf(string, ...any)               {}
func (t *trial) Error(args ...any)                 { t.failure = fmt.Sprint(args...) }
func (t *trial) Errorf(format string, args ...any) { t.failure = fmt.Sprintf(format, args...) }
func (t *trial) Failed() bool                      { return t.failure != "" }
func (t *trial) FailNow()                          { runtime.Goexit() }

func (t *trial) Fatal(args ...any) {
	t.failure = fmt.Sprint(args...)
	runtime.Goexit()
}

func (t *trial) Fatalf(format string, args ...any) {
	t.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// try runs f on its own and returns how it failed.
func try(parent testing.TB, f func(t *trial)) (failure string) {
	t := &trial{TB: parent}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				t.failure = fmt.Sprint("panic: ", r)
			}
		}()
		f(t)
	}()
	<-done
	return t.failure
}

// Each target finds devices wrong that are, by one of its seeds or by a little noise:
// what it checks can fail, and for the reason given.
func TestTargetsFindDefects(t *testing.T) {
	for _, c := range []struct {
		target string
		run    func(testing.TB, []byte)
		seeds  func(func([]byte))
		defect string
		says   string
	}{
		{"RoCEPath", rocePath, honestSeeds, "DuplicatesExecuted", ""},
		{"RoCEPath", rocePath, honestSeeds, "AckCompletesRead", ""},
		{"RoCEPeer", rocePeer, hostileSeeds, "IgnorePD", ""},
		{"RoCEPeer", rocePeer, hostileSeeds, "WindowBounds", "outside of the window"},
		{"RoCEPeer", rocePeer, hostileSeeds, "CompletionsOvertake", "completes before"},
		{"DatagramPath", datagramPath, honestSeeds, "DeliversAsTheyCome", ""},
		{"DatagramPath", datagramPath, honestSeeds, "GapsForgotten", ""},
		{"DatagramPeer", datagramPeer, hostileSeeds, "NeverGivesUp", "long been in ERR"},
		{"DatagramPeer", datagramPeer, hostileSeeds, "IgnorePD", ""},
		{"DatagramPeer", datagramPeer, hostileSeeds, "WindowBounds", ""},
		{"StreamPeer", streamPeer, streamSeeds, "IgnorePD", "of another protection domain"},
		{"RoCEPath", rocePath, honestSeeds, "LastCompletesTwice", ""},
	} {
		t.Run(c.target+"/"+c.defect, func(t *testing.T) {
			if !selectMutant(t, c.defect) {
				enabledDefects = []string{c.defect}
				defer func() { enabledDefects = nil }()
			}
			tried := 0
			failure := ""
			attempt := func(b []byte) {
				if failure == "" {
					tried++
					failure = try(t, func(t *trial) { c.run(t, b) })
				}
			}
			c.seeds(attempt)
			for seed := range uint64(200) {
				attempt(noise(1000+seed, 400))
			}
			if failure == "" || !strings.Contains(failure, c.says) {
				t.Fatalf("%d inputs, and it said %q; want %q", tried, failure, c.says)
			}
			t.Logf("input %d: %s", tried, failure)
		})
	}
}

// The model of verbs finds devices wrong that are.
func TestTheModelFindsDefects(t *testing.T) {
	for name, value := range map[string]string{"rapid.seed": "1", "rapid.checks": "3000", "rapid.shrinktime": "0s"} {
		was := flag.Lookup(name).Value.String()
		must.Do(t, flag.Set(name, value))
		t.Cleanup(func() { _ = flag.Set(name, was) })
	}
	names := []string{
		"InUseDestroyed", "AHClosesTwice", "FlushReversed", "ArmsWithoutChannel", "SignalAllIgnored", "RecvStateWrong",
		"ModifyHalfway", "StaleKeys", "NoFlushInError", "AnyQPType", "RefusedWRStays", "ArmStays",
	}
	if testing.Short() { // of which rapid makes a fifth of the tries: too few for the rest
		names = names[:6]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if !selectMutant(t, name) {
				enabledDefects = []string{name}
				defer func() { enabledDefects = nil }()
			}
			failure := try(t, func(t *trial) {
				rapid.Check(t, func(t *rapid.T) { sequenceOn(t, 0) })
			})
			if failure == "" {
				t.Fatal("it keeps to the model")
			}
			t.Log(failure)
		})
	}
}

// selectMutant selects a defect that is a mutant, and reports whether it is one. Only a
// build with mutants has it.
func selectMutant(t *testing.T, defect string) bool {
	t.Helper()
	if !nics.IsMutant(defect) {
		return false
	}
	if !mutant.Select(defect) {
		t.Skip("this test was built without mutants; the conform step of CI runs it with them")
	}
	t.Cleanup(func() { mutant.Select("") })
	return true
}
