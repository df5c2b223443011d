package mpi_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/netns"
)

// rankCommand makes the test binary a rank. The next arguments are a pattern and a number n: the
// rank runs every n-th case, if the pattern matches its ID.
const rankCommand = "test-rank"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case mpirun.ProcessCommand:
			code, err := mpirun.ProcessMain()
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			os.Exit(code)
		case rankCommand:
			which := regexp.MustCompile(os.Args[2])
			n, err := strconv.Atoi(os.Args[3])
			if err != nil {
				panic(err)
			}
			i := 0
			pick := func(c *cases.Case) bool {
				i++
				// Cases about background progress need virtual time.
				return i%n == 0 && !cases.NeedsBackground(c) && which.MatchString(c.ID)
			}
			mpi.Main(func(w *mpi.World) error { return cases.InTurn(cases.On(w), pick) })
		}
	}
	debug.SetGCPercent(400) // hundreds of small worlds are created and become garbage
	os.Exit(m.Run())
}

// Cases pass in real time, between processes in namespaces, where ranks and NICs run concurrently:
// all of them, or by default every third.
func TestCasesInNamespaces(t *testing.T) {
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	self := must.Get(filepath.EvalSymlinks("/proc/self/exe"))(t)
	every := "1"
	if !*everywhere && !part.Given() && *match == "" {
		every = "3"
	}
	for i, s := range inNamespaces() {
		if !part.Has(i) {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			options := must.Get(json.Marshal(s.options()))(t)
			r := mpirun.Config{Args: []string{self, rankCommand, *match, every}, Job: mpihost.Job{
				Ranks: 7, PerHost: 2, Provider: s.provider, Seed: 1, Options: options, Limit: 2 * time.Minute,
			}}
			if s.network == "loss" {
				r.LossPPM = 1000
			}
			result, err := mpirun.InNamespaces(t.Context(), r)
			if err != nil || result.Code != 0 {
				t.Errorf("%v, exit code %d", err, result.Code)
			}
		})
	}
}

// inNamespaces are the set-ups of the runs in namespaces.
func inNamespaces() []setup {
	if !*everywhere && !part.Given() {
		return []setup{{"softroce", carrier.RingSRQ, p2p.Speculative, mpi.Polling, "clean", 0, "", false}}
	}
	var all []setup
	for _, provider := range providers {
		for i, design := range carrier.Designs() {
			if !hasDesign(provider, design) {
				continue
			}
			all = append(all, setup{provider.Name, design, protocols[i%3], modes[i%2], []string{"clean", "loss"}[i/2%2], eagers[i/3%2*2], "", false})
		}
	}
	return all
}
