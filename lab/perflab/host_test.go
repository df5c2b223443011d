package perflab

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestHostOpensDeviceOfCommand(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.7")
	failed := errors.New("no device today")
	for _, offloaded := range []bool{false, true} {
		h := &host{addr: addr, kinds: map[conformance.Protocol]deviceKind{"test": {open: func(at nics.NICConfig, without bool) (verbs.Context, error) {
			if at.Addr != addr || at.Cable != nil || without != offloaded {
				t.Errorf("device on %v, offloaded %v", at, without)
			}
			return nil, failed
		}}}}
		if _, err := h.execute(t.Context(), command{Program: &perf.Program{Latency: &perf.Latency{Op: verbs.OpSend}}, Kind: "test", Offloaded: offloaded}); !errors.Is(err, failed) {
			t.Errorf("got %v", err)
		}
		if _, err := h.execute(t.Context(), command{Idle: true, Kind: "unheard of"}); err == nil || !strings.Contains(err.Error(), "unheard of") {
			t.Errorf("got %v", err)
		}
	}
}
