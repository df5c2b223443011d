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

// defect enables the defects in a device's policy.
func defect[P any](t testing.TB, policy *P, set func(policy *P, name string) bool) {
	t.Helper()
	for _, name := range enabledDefects {
		if !set(policy, name) {
			t.Fatalf("no defect %s", name)
		}
	}
}

// trial is a testing.TB whose failure does not fail its parent.
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

// try runs f on a goroutine and returns the failure message.
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

// Each target fails on a device with a defect, with one of its seeds or a random input, and for the
// expected reason.
func TestTargetsFindDefects(t *testing.T) {
	for _, c := range []struct {
		target string
		run    func(testing.TB, []byte)
		seeds  func(func([]byte))
		defect string
		says   string
	}{
		{"RoCEPath", rocePath, networkSeeds, "DuplicatesExecuted", ""},
		{"RoCEPath", rocePath, networkSeeds, "AckCompletesRead", ""},
		{"RoCEPeer", rocePeer, attackSeeds, "IgnorePD", ""},
		{"RoCEPeer", rocePeer, attackSeeds, "WindowBounds", "outside of the window"},
		{"RoCEPeer", rocePeer, attackSeeds, "CompletionsOvertake", "completes before"},
		{"DatagramPath", datagramPath, networkSeeds, "DeliversAsTheyCome", ""},
		{"DatagramPath", datagramPath, networkSeeds, "GapsForgotten", ""},
		{"DatagramPeer", datagramPeer, attackSeeds, "NeverGivesUp", "long been in ERR"},
		{"DatagramPeer", datagramPeer, attackSeeds, "IgnorePD", ""},
		{"DatagramPeer", datagramPeer, attackSeeds, "WindowBounds", ""},
		{"StreamPeer", streamPeer, streamSeeds, "IgnorePD", "of another protection domain"},
		{"RoCEPath", rocePath, networkSeeds, "LastCompletesTwice", ""},
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
				attempt(randomBytes(1000+seed, 400))
			}
			if failure == "" || !strings.Contains(failure, c.says) {
				t.Fatalf("after %d inputs the failure is %q, want %q", tried, failure, c.says)
			}
			t.Logf("input %d: %s", tried, failure)
		})
	}
}

// Sequences of verbs fail on devices with a defect.
func TestModelFindsDefects(t *testing.T) {
	for name, value := range map[string]string{"rapid.seed": "1", "rapid.checks": "3000", "rapid.shrinktime": "0s"} {
		was := flag.Lookup(name).Value.String()
		must.Do(t, flag.Set(name, value))
		t.Cleanup(func() { _ = flag.Set(name, was) })
	}
	names := []string{
		"InUseDestroyed", "AHClosesTwice", "FlushReversed", "ArmsWithoutChannel", "SignalAllIgnored", "RecvStateWrong",
		"ModifyHalfway", "StaleKeys", "NoFlushInError", "AnyQPType", "RefusedWRStays", "ArmStays",
	}
	if testing.Short() { // rapid then makes a fifth of the tries: too few for the others
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
				t.Fatal("the device with the defect matches the model")
			}
			t.Log(failure)
		})
	}
}

// selectMutant selects a defect that is a mutant, and reports whether it is one. Only a build with
// mutants has it.
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
