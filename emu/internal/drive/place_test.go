package drive

import (
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

const testPacket = 1500 // the longest packet of inPlaceEcho

// inPlaceEcho is an echo that places packets behind each other.
type inPlaceEcho struct {
	*echo
	bytes   int // of each packet
	batches []int
}

func (e *inPlaceEcho) BuildInPlace() int { return testPacket }

// Output implements Engine: it fills all of ds.
func (e *inPlaceEcho) Output(_ mono.Time, ds []link.Datagram) int {
	e.batches = append(e.batches, len(ds))
	for i := range ds {
		if i > 0 {
			ds[i].Payload = ds[i-1].Payload[:link.PlaceAfter(e.bytes)+e.bytes][link.PlaceAfter(e.bytes):]
			continue
		}
		ds[0].Payload = ds[0].Payload[:e.bytes]
	}
	return len(ds)
}

// placingLink takes all datagrams, and counts those that are in its memory.
type placingLink struct {
	*pipe
	memory  []byte
	inPlace int
}

func (l *placingLink) SendBuffer(n, maxLen int) []byte {
	return l.memory[:min(len(l.memory), max(0, n*link.PlaceAfter(maxLen)-link.PlaceAfter(0)))]
}

func (l *placingLink) Send(_ mono.Time, ds []link.Datagram) (int, error) {
	if len(l.memory) > 0 && &ds[0].Payload[0] == &l.memory[0] {
		l.inPlace += len(ds)
	}
	return len(ds), nil
}

func (l *placingLink) MTU() int { return 2000 }

// Packets are built in the memory of the link as far as it has room, and a batch of long packets is
// short. After a full batch there may be more, however short it is.
func TestSendQueueBuildsPacketsInPlace(t *testing.T) {
	for _, c := range []struct {
		places, bytes int
		batches       []int
		inPlace       int
	}{
		{100, 60, []int{BatchSize, BatchSize}, 2 * BatchSize},
		{100, 1400, []int{BatchSize, longBatch}, BatchSize + longBatch},
		{5, 60, []int{5, 5}, 10},
		{1, 60, []int{1, 1}, 2},
		{0, 60, []int{BatchSize, BatchSize}, 0},
		{0, 1400, []int{BatchSize, longBatch}, 0},
	} {
		e := &inPlaceEcho{echo: &echo{deadline: mono.Never}, bytes: c.bytes}
		l := &placingLink{memory: make([]byte, max(0, c.places*link.PlaceAfter(testPacket)-link.PlaceAfter(0)))}
		q := newQueueFor(e, l)
		for range 2 {
			if more, full := q.Flush(1, e, l); !more || full {
				t.Errorf("%+v: more %v, full %v", c, more, full)
			}
		}
		if !slices.Equal(e.batches, c.batches) || l.inPlace != c.inPlace {
			t.Errorf("%+v: batches %v, %d in place", c, e.batches, l.inPlace)
		}
	}
}
