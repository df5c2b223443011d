//go:build ibverbs && linux && cgo

package bench

import (
	"context"
	"maps"
	"os"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/verbsapi"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// TestVerbsAPIOverLibibverbs runs the verbs API cases on each RDMA device of this host, with itself
// as the peer. FABRICTEST_IBV_DEVICE selects one device, and FABRICTEST_IBV_DEVIATIONS its known
// deviations, for example rxe-6.12.
func TestVerbsAPIOverLibibverbs(t *testing.T) {
	infos, err := ibv.Provider{}.Devices()
	if err != nil || len(infos) == 0 {
		t.Skipf("no RDMA device here: %v", err)
	}
	h := must.Get(NewLocalHost(ibv.Provider{}, LocalHostOptions{}))(t)
	defer h.Close()
	known := map[string]conformance.Deviation{
		// An agent chooses the page offset of memory.
		"verbs/mr/address-as-asked": {Reason: "the kernel requires the page offset of the requested address, which a Go program cannot choose"},
	}
	if name := os.Getenv("FABRICTEST_IBV_DEVIATIONS"); name != "" {
		of, err := conformance.DeviationsOf(name, "wire")
		if err != nil || of == nil {
			t.Fatalf("FABRICTEST_IBV_DEVIATIONS=%s: no deviations: %v", name, err)
		}
		maps.Copy(known, of)
	}
	only := os.Getenv("FABRICTEST_IBV_DEVICE")
	for _, info := range infos {
		if only != "" && only != info.Name {
			continue
		}
		t.Run(info.Name, func(t *testing.T) {
			lab := must.Get(onLocalDevice(h, info.Name, 0))(t)
			judgeAlone(t, lab, known)
		})
	}
}

func judgeAlone(t *testing.T, lab conformance.Lab, known map[string]conformance.Deviation) {
	counts := make(map[conformance.Verdict]int)
	suite := verbsapi.Suite()
	for i := range suite.Cases {
		c := &suite.Cases[i]
		if c.Dangerous() {
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			res := conformance.Judge(context.Background(), lab, c, conformance.Options{Seed: 1, Deviations: known})
			counts[res.Verdict]++
			switch res.Verdict {
			case conformance.VerdictPass:
			case conformance.VerdictStale:
				// Deviations were found from the wire. A device in loopback may have fewer.
				t.Logf("passes here: %s", res.Deviation)
			case conformance.VerdictUnsupported:
				t.Skipf("%s: %v", res.Verdict, res.Err)
			case conformance.VerdictDeviates:
				t.Skipf("%s: %v: %s", res.Verdict, res.Err, res.Deviation)
			default:
				t.Errorf("%s [%s]: %v", res.Verdict, c.Cite, res.Err)
			}
		})
	}
	t.Logf("cases by verdict: %v", counts)
}
