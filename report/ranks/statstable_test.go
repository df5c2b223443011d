package ranks

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// WriteStats prints mpi.Stats, which ranks report as JSON.
func TestWriteStats(t *testing.T) {
	var reports []json.RawMessage
	for _, n := range []uint64{3, 5} {
		var s mpi.Stats
		s.P2P.Sent[p2p.Rendezvous] = p2p.Sizes{Messages: n, Bytes: n << 20}
		c := carrier.Stats{ConnStats: carrier.ConnStats{MaxConnections: int(n)}}
		c.Packets[carrier.OverRing] = 10 * n
		c.Memory.Max[memory.RingBuffers] = int(n) << 10
		s.Carrier = c
		text := must.Get(json.Marshal(s))(t)
		reports = append(reports, text)
	}
	all := must.Get(ParseStats(append(reports, nil)))(t)
	var b strings.Builder
	must.Do(t, WriteStats(&b, all))
	want := `2 of 3 ranks sum min max
rendezvous messages sent 8 3 5
bytes 8.0 MiB 3.0 MiB 5.0 MiB
packets by ring 80 30 50
connections, maximum 3 5
memory of rings 8.0 KiB 3.0 KiB 5.0 KiB
`
	var got strings.Builder
	for line := range strings.Lines(b.String()) {
		got.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	if got.String() != want {
		t.Errorf("%s\nwant\n%s", got.String(), want)
	}
	if _, err := ParseStats([]json.RawMessage{[]byte("[]")}); err == nil || !strings.Contains(err.Error(), "rank 0") {
		t.Error(err)
	}
}
