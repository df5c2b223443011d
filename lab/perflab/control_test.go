package perflab

import (
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

// hostOver serves a host on pipes and returns the parent's ends.
func hostOver(t *testing.T, open opener) (to *json.Encoder, from *json.Decoder, ended chan error, hangUp func() error) {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended = make(chan error, 1)
	go func() {
		ended <- serve(t.Context(), newControlChannel(inR, outW), map[string]deviceKind{"test": {open: open}})
		outW.Close()
	}()
	t.Cleanup(func() { inW.Close(); outR.Close() })
	return json.NewEncoder(inW), json.NewDecoder(outR), ended, inW.Close
}

func TestHostReportsErrorAndContinues(t *testing.T) {
	opened := 0
	to, from, ended, hangUp := hostOver(t, func(addr netip.Addr, offloaded bool) (verbs.Context, error) {
		opened++
		if addr.String() != "192.0.2.7" || offloaded != (opened == 2) {
			t.Errorf("device on %v, offloaded %v", addr, offloaded)
		}
		return nil, errors.New("no device today")
	})
	to.Encode(command{Identity: &identity{Addr: netip.MustParseAddr("192.0.2.7")}})
	for i := range 2 {
		to.Encode(command{Program: &perf.Program{PingPong: &perf.PingPong{}}, Kind: "test", Offloaded: i == 1})
		var r reply
		if err := from.Decode(&r); err != nil || !r.Done || r.Error != "no device today" {
			t.Errorf("reply %+v, %v", r, err)
		}
	}
	to.Encode(command{Idle: true, Kind: "unheard of"})
	var r reply
	if err := from.Decode(&r); err != nil || !strings.Contains(r.Error, "unheard of") {
		t.Errorf("reply %+v, %v", r, err)
	}
	hangUp()
	if err := <-ended; err != nil {
		t.Errorf("a host whose parent has gone: %v", err)
	}
}

func TestHostNeedsIdentity(t *testing.T) {
	to, _, ended, _ := hostOver(t, nil)
	to.Encode(command{Idle: true})
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "has no identity") {
		t.Errorf("got %v", err)
	}
}
