package mpirun

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/coll"
)

// The algorithms of collective operations come from the flag, or else from the environment.
func TestCollectivesFromFlagOrEnvironment(t *testing.T) {
	t.Setenv(collectivesVariable, "bcast=chain")
	for flag, want := range map[string]string{"": "chain", "bcast=linear,barrier=tree": "linear"} {
		c := Config{Job: mpihost.Job{Ranks: 2, PerHost: 1, Rails: 1}}
		s := Settings{Loss: "0%", Collectives: flag}
		must.Do(t, s.Apply(&c))
		var o mpi.Options
		must.Do(t, json.Unmarshal(c.Options, &o))
		if a := o.Collectives[coll.Bcast]; a == nil || a.Name != want {
			t.Errorf("--collectives=%s: %+v, want %s", flag, a, want)
		}
	}
	for wrong, want := range map[string]string{"bcast=bruck": `algorithm "bruck" of bcast is none of binomial`, "gossip=ring": `operation "gossip" is none of barrier, bcast`} {
		s := Settings{Loss: "0%", Collectives: wrong}
		if err := s.Apply(&Config{Job: mpihost.Job{Ranks: 2, PerHost: 1, Rails: 1}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--collectives=%s: %v, want %s", wrong, err, want)
		}
	}
}
