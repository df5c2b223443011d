//go:build ibverbs && linux && cgo

package ibv

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestCountersOfDeviceAndPorts(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		file := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("ports/1/hw_counters/sent_pkts", "12\n")
	write("ports/1/hw_counters/acks", "18446744073709551615\n")
	write("ports/1/hw_counters/lifespan", "10\n")
	write("ports/1/hw_counters/words", "none\n")
	want := []verbs.Counter{{Name: "acks", Value: 1<<64 - 1}, {Name: "sent_pkts", Value: 12}}
	if got := countersIn(dir); !slices.Equal(got, want) {
		t.Errorf("one port: %v, want %v", got, want)
	}
	write("ports/2/hw_counters/acks", "3\n")
	write("hw_counters/resets", "1\n")
	want = []verbs.Counter{{Name: "resets", Value: 1}, {Name: "port1_acks", Value: 1<<64 - 1}, {Name: "port1_sent_pkts", Value: 12}, {Name: "port2_acks", Value: 3}}
	if got := countersIn(dir); !slices.Equal(got, want) {
		t.Errorf("two ports: %v, want %v", got, want)
	}
	if got := countersIn(filepath.Join(dir, "none")); got != nil {
		t.Errorf("no device: %v", got)
	}
}

func TestSignallingRate(t *testing.T) {
	for _, c := range []struct {
		speed, width uint8
		want         uint64
	}{{1, 1, 2_500_000_000}, {32, 2, 103_125_000_000}, {128, 2, 425_000_000_000}, {3, 1, 0}, {1, 3, 0}} {
		if got := linkRateBps(c.speed, c.width); got != c.want {
			t.Errorf("speed %d, width %d: %d, want %d", c.speed, c.width, got, c.want)
		}
	}
}
