package mpihost

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestJobFabric(t *testing.T) {
	text := must.Get(json.Marshal(Job{Ranks: 6, PerHost: 2, Rails: 2, Provider: "dgiwarp", MTU: 9000, LossPPM: 100, Seed: 4, Limit: time.Second, Options: json.RawMessage(`{"a":1}`)}))(t)
	j, err := parseJob(text)
	if err != nil || j.Check() != nil || string(j.Options) != `{"a":1}` {
		t.Fatalf("%+v, %v, %v", j, err, j.Check())
	}
	f, _, err := must.Get(j.fabric())(t).withDefaults()
	if err != nil || len(must.Get(f.topology())(t).Hosts) != 3 || f.Link.MTU != 9000 || f.Impair[0].LossPPM != 100 || f.Seed != 4 || f.Limit != time.Second || f.Setup.Options["reliable"] != true {
		t.Errorf("%+v, %v", f, err)
	}
	for want, j := range map[string]Job{
		"0 ranks": {}, "no provider \"x\"": {Ranks: 1, Provider: "x"}, "9 rails": {Ranks: 1, Rails: 9}, "no option icrc": {Ranks: 1, Provider: "softiwarp", ICRCOffloaded: true},
	} {
		if err := j.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for want, text := range map[string]string{"was not started by": "", "the job from": "{"} {
		if _, err := parseJob([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestParseAbort(t *testing.T) {
	text := must.Get(json.Marshal(&AbortError{Rank: 2, Code: 3, Reason: "enough"}))(t)
	if e := ParseAbort(abortMark + string(text)); e == nil || *e != (AbortError{2, 3, "enough"}) || e.ExitCode() != 3 {
		t.Errorf("%+v", e)
	}
	for _, mark := range []string{"connected", abortMark + "{", string(text)} {
		if e := ParseAbort(mark); e != nil {
			t.Errorf("%q is taken for %v", mark, e)
		}
	}
	for _, code := range []int{0, -1, 256} {
		if n := (&AbortError{Code: code}).ExitCode(); n != 1 {
			t.Errorf("code %d becomes %d", code, n)
		}
	}
}

func TestWrapErr(t *testing.T) {
	if err := wrapErr(launch.ErrEnded); !errors.Is(err, transport.ErrGone) || !errors.Is(err, launch.ErrEnded) {
		t.Error(err)
	}
	if err := wrapErr(launch.ErrTimeout); !errors.Is(err, verbs.ErrTimeout) {
		t.Error(err)
	}
	if err := wrapErr(launch.ErrDisconnected); !errors.Is(err, launch.ErrDisconnected) || wrapErr(nil) != nil {
		t.Error(err)
	}
}
