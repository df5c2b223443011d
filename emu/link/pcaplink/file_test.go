package pcaplink

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/pcapng"
)

// packets returns the number of packets in a file, which must be complete.
func packets(t *testing.T, file []byte) (n int, r *pcapgo.NgReader) {
	t.Helper()
	r = must.Get(pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions))(t)
	for {
		if _, _, err := r.ReadPacketData(); errors.Is(err, io.EOF) {
			return n, r
		} else if err != nil {
			t.Fatalf("packet %d: %v", n, err)
		}
		n++
	}
}

// A file does not exceed MaxBytes, calls OnLimit once, and ends with the number of dropped
// packets of each interface.
func TestMaxBytesLimitsFile(t *testing.T) {
	for _, limit := range []int64{4 << 10, 10_001, 64 << 10} {
		var file bytes.Buffer
		calls := 0
		f := NewFile(&file, FileOptions{
			LinkType: pcapng.Ethernet, Comment: "replay", MaxBytes: limit,
			OnLimit: func() { calls++ }, OnError: func(err error) { t.Error(err) },
		})
		const each = 300
		a, b := f.AddInterface("a"), f.AddInterface("b")
		for i := range each {
			f.Write(Packet{Interface: a, At: time.Duration(i), Bytes: make([]byte, 1000+i)})
			f.Write(Packet{Interface: b, At: time.Duration(i), Bytes: make([]byte, 60), Comment: "lost"})
		}
		must.Do(t, f.Close())
		n, r := packets(t, file.Bytes())
		if int64(file.Len()) > limit || int64(file.Len()) < limit-2*2700 || calls != 1 {
			t.Errorf("limit %d: %d bytes, %d calls of OnLimit", limit, file.Len(), calls)
		}
		all, dropped := uint64(0), uint64(0)
		for _, id := range []int{a, b} {
			intf := must.Get(r.Interface(id))(t)
			all += intf.Statistics.PacketsReceived
			dropped += intf.Statistics.PacketsDropped
		}
		if last := bytes.Count(file.Bytes(), []byte(limitComment)); last != 1 {
			t.Errorf("limit %d: %d packets have limitComment", limit, last)
		}
		if all != 2*each || dropped != uint64(2*each-n) {
			t.Errorf("limit %d: %d packets, and statistics of %d dropped of %d", limit, n, dropped, all)
		}
	}
}

func TestFileWithoutLimitHasAllPackets(t *testing.T) {
	var file bytes.Buffer
	f := NewFile(&file, FileOptions{OnLimit: func() { t.Error("OnLimit was called") }})
	id := f.AddInterface("x")
	for range 1000 {
		f.Write(Packet{Interface: id, Bytes: make([]byte, 100)})
	}
	must.Do(t, f.Close())
	f.Write(Packet{Interface: id, Bytes: make([]byte, 100)})
	if f.AddInterface("late"); f.Flush() != nil {
		t.Error(f.Flush())
	}
	if n, _ := packets(t, file.Bytes()); n != 1000 {
		t.Errorf("%d packets", n)
	}
}

// Trim of every prefix of a file leaves a valid file with all complete packets.
func TestTrimKeepsCompleteBlocks(t *testing.T) {
	var file bytes.Buffer
	f := NewFile(&file, FileOptions{Comment: "replay"})
	id := f.AddInterface("x")
	ends := []int{0}
	for i := range 4 {
		must.Do(t, f.Flush())
		ends = append(ends, file.Len())
		f.Write(Packet{Interface: id, Bytes: make([]byte, 10+i), Comment: "lost"})
	}
	must.Do(t, f.Close())
	ends = append(ends, file.Len())
	name := filepath.Join(t.TempDir(), "x.pcapng")
	for size := range file.Len() + 1 {
		must.Do(t, os.WriteFile(name, file.Bytes()[:size], 0o600))
		if err := Trim(name); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		trimmed := must.Get(os.ReadFile(name))(t)
		if !bytes.HasPrefix(file.Bytes(), trimmed) || len(trimmed) > size {
			t.Fatalf("%d bytes: the trimmed file is no prefix", size)
		}
		complete := 0 // complete packets; -1 if the interface block is incomplete
		for k, end := range ends {
			if end <= size {
				complete = k - 1
			}
		}
		if complete >= 0 {
			if n, _ := packets(t, trimmed); n != complete {
				t.Fatalf("%d bytes: %d packets, want %d", size, n, complete)
			}
		}
	}
}

func TestTrimEmptiesOtherFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.pcapng")
	must.Do(t, os.WriteFile(name, []byte("this is not a capture file at all"), 0o600))
	must.Do(t, Trim(name))
	if info, err := os.Stat(name); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v", info.Size(), err)
	}
	must.Fail(t, "Trim of a missing file", Trim(name+"x"), os.ErrNotExist)
}

// A compressed file has all packets, with comments added, and is reproducible.
func TestCompressAddsComments(t *testing.T) {
	compress := func() []byte {
		name := filepath.Join(t.TempDir(), "x.pcapng")
		out := must.Get(os.Create(name))(t)
		f := NewFile(out, FileOptions{Comment: "replay"})
		id := f.AddInterface("x")
		for i := range 300 {
			p := Packet{Interface: id, At: time.Duration(i), Bytes: make([]byte, 1000+i)}
			if i%2 == 0 {
				p.Direction = pcapng.Outbound
			}
			if i%5 == 0 {
				p.Comment = "corrupted"
			}
			f.Write(p)
		}
		must.Do(t, errors.Join(f.Close(), out.Close()))
		compressed, size, err := Compress(name, func(i int) string {
			if i%3 == 0 {
				return "lost"
			}
			return ""
		})
		if err != nil || compressed != name+CompressedSuffix {
			t.Fatal(compressed, err)
		}
		must.Fail(t, "Stat of the original file", must.Err(os.Stat(name)), os.ErrNotExist)
		text, err := os.ReadFile(compressed)
		if err != nil || int64(len(text)) != size || size > 30_000 {
			t.Fatalf("%d bytes, Compress returned %d: %v", len(text), size, err)
		}
		return text
	}
	text := compress()
	if !bytes.Equal(text, compress()) {
		t.Error("two compressions of the same packets differ")
	}
	z := must.Get(gzip.NewReader(bytes.NewReader(text)))(t)
	r := must.Get(pcapgo.NewNgReader(z, pcapgo.DefaultNgReaderOptions))(t)
	for i := range 300 {
		data, _, opts, err := r.ReadPacketDataWithOptions()
		if err != nil || len(data) != 1000+i {
			t.Fatalf("packet %d: %d bytes, %v", i, len(data), err)
		}
		var want []string
		if i%5 == 0 {
			want = append(want, "corrupted")
		}
		if i%3 == 0 {
			want = append(want, "lost")
		}
		if !slices.Equal(opts.Comments, want) {
			t.Errorf("packet %d: comments %q, want %q", i, opts.Comments, want)
		}
	}
	if _, _, err := r.ReadPacketData(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last packet: %v", err)
	}
}
