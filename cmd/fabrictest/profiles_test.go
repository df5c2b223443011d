package main

import (
	"bytes"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/report/conform"
)

// outcome is what is to come of judging a profile, by rows of the ledger.
type outcome struct {
	Fail    []string          `yaml:"fail"`
	Also    map[string]string `yaml:"also"`
	Unasked map[string]string `yaml:"unasked"`
}

// A device with the profile of a kernel is judged like that kernel: what it breaks
// fails, and nothing else does for which there is no reason.
func TestProfilesAreJudgedLikeTheirKernels(t *testing.T) {
	t.Parallel()
	program, cache := testProgram(t), t.TempDir()
	b := must.Get(os.ReadFile("testdata/profiles.yaml"))(t)
	all := make(map[string]outcome)
	must.Do(t, yaml.Unmarshal(b, &all))
	for name, want := range all {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(program, append(append([]string{"conform", "--json", "--capture", "none"}, asked(t, name)...),
				"--as", name, "--dangerous", "--without", "slow")...)
			cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
			out, err := cmd.Output()
			run, errRead := conform.Read(bytes.NewReader(out))
			if errRead != nil {
				t.Fatalf("%v, %v", err, errRead)
			}
			failed := failedRows(run)
			for _, row := range want.Fail {
				if failed[row] == "" {
					t.Errorf("%s passes, and the kernel breaks it: does a defect do too little?", row)
				}
			}
			for row, why := range want.Unasked {
				if failed[row] != "" {
					t.Errorf("%s can be asked after all: move it to fail (%s)", row, why)
				}
			}
			for row, why := range want.Also {
				if failed[row] == "" {
					t.Errorf("%s passes: delete it from also (%s)", row, why)
				}
			}
			for row, how := range failed {
				if _, known := want.Also[row]; !known && !slices.Contains(want.Fail, row) {
					t.Errorf("%s fails, and the kernel was not seen to break it: a defect does too much, or a case asks for more than the row: %s", row, how)
				}
			}
		})
	}
	for _, p := range nics.Profiles() {
		if _, ok := all[p.Name]; !ok && p.Name != "siw-6.1" {
			t.Errorf("testdata/profiles.yaml has no %s", p.Name)
		}
	}
	// What holds for one version of siw holds for the other.
	a, errA := nics.FindProfile("siw-6.1")
	c, errC := nics.FindProfile("siw-6.12")
	if errA != nil || errC != nil || !slices.Equal(a.Defects, c.Defects) || !reflect.DeepEqual(a.Restrictions, c.Restrictions) {
		t.Error("siw-6.1 and siw-6.12 differ: testdata/profiles.yaml needs both")
	}
}

// longWinded takes a third of the time of all cases, and finds none of the defects that
// the kernels are known for.
const longWinded = "cm/life/thousands-of-connections-leave-no-residue"

// asked are the cases of all suites for devices like those of a profile.
func asked(t *testing.T, profile string) (ids []string) {
	t.Helper()
	p := must.Get(nics.FindProfile(profile))(t)
	provider := must.Get(nics.Find(p.Provider))(t)
	for _, suite := range judge.SuitesOf(provider.Protocol) {
		for i := range suite.Cases {
			if id := suite.Cases[i].ID; id != longWinded {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// failedRows are those with a case that fails, and how.
func failedRows(run *conform.Run) map[string]string {
	rows := make(map[string]string)
	for _, r := range run.Bad() {
		for _, row := range r.Rows {
			rows[row] = strings.TrimSpace(rows[row] + " " + r.ID + ": " + r.Reason)
		}
	}
	return rows
}
