package ethernet

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

type record struct {
	at      time.Time
	intf    string
	comment string
	length  int
	data    []byte
}

func readCapture(t *testing.T, file []byte) (all []record) {
	t.Helper()
	r := must.Get(pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions))(t)
	for {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return all
		}
		must.Do(t, err)
		intf := must.Get(r.Interface(ci.InterfaceIndex))(t)
		if intf.LinkType != layers.LinkTypeEthernet {
			t.Errorf("link type %v", intf.LinkType)
		}
		all = append(all, record{ci.Timestamp, intf.Name, strings.Join(opts.Comments, ";"), ci.Length, data})
	}
}

// events applies a different event to each of the first datagrams.
func events(t *testing.T, actions ...impair.Action) *Impairer {
	var cfg impair.Config
	for i, a := range actions {
		cfg.Events = append(cfg.Events, impair.Event{Match: impair.Match{Nth: new(uint64(i + 1))}, Action: a})
	}
	return newPath(t, cfg, nil)
}

func TestCaptureCommentsDescribeImpairments(t *testing.T) {
	var file bytes.Buffer
	epoch := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := NewCapture(&file, CaptureOptions{Epoch: epoch, Comment: "seed 7"})
	path := events(t,
		impair.Action{Kind: impair.Drop},
		impair.Action{Kind: impair.CorruptBit, Bit: 0},
		impair.Action{Kind: impair.Duplicate},
		impair.Action{Kind: impair.Delay, Delay: time.Millisecond},
		impair.Action{Kind: impair.Reorder, Count: 9, Delay: time.Second},
		impair.Action{Kind: impair.SetECN, ECN: 3},
	)
	in := c.Tap("host0", path)
	out := c.Tap("host1", passThrough{})
	filtered := c.Tap("host2", &Filter{Next: passThrough{}, Blocked: func(_, _ netip.Addr) bool { return true }})
	whole := frameOf(t, datagram(true, []byte("payload")))
	f := uswitch.Frame{Bytes: partial(t, whole), ChecksumPartial: true}
	for i := range 7 {
		in.Apply(time.Duration(i), f, func(time.Duration, uswitch.Frame) {})
	}
	in.HandleTimer(2*time.Second, func(time.Duration, uswitch.Frame) {})
	out.Apply(3*time.Second, f, func(time.Duration, uswitch.Frame) {})
	filtered.Apply(4*time.Second, f, func(time.Duration, uswitch.Frame) {})
	must.Do(t, c.Close())

	got := readCapture(t, file.Bytes())
	want := []struct {
		intf, comment string
		at            time.Duration
		same          bool
	}{
		{"host0", "fabrictest: lost by an event", 0, true},
		{"host0", "fabrictest: corrupted (the next frame of the capture shows it as it left)", 1, true},
		{"host0", "fabrictest: as it left", 1, false},
		{"host0", "fabrictest: duplicated", 2, true},
		{"host0", "fabrictest: event, leaves after 1ms", 3, true},
		{"host0", "fabrictest: reordered", 4, true},
		{"host0", "fabrictest: marked (the next frame of the capture shows it as it left)", 5, true},
		{"host0", "fabrictest: as it left", 5, false},
		{"host0", "", 6, true},
		{"host0", "fabrictest: held back until now", 2 * time.Second, true},
		{"host1", "", 3 * time.Second, true},
		{"host2", "fabrictest: lost: partitioned", 4 * time.Second, true},
	}
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		g := got[i]
		if g.intf != w.intf || g.comment != w.comment || !g.at.Equal(epoch.Add(w.at)) || bytes.Equal(g.data, whole) != w.same {
			t.Errorf("record %d: %s %q %v, same %v; want %+v", i, g.intf, g.comment, g.at.Sub(epoch), bytes.Equal(g.data, whole), w)
		}
		if err := verify(uswitch.Frame{Bytes: g.data}); err != nil {
			t.Errorf("record %d: %v", i, err)
		}
	}
}

func TestEmptyCaptureIsValidFile(t *testing.T) {
	var file bytes.Buffer
	must.Do(t, NewCapture(&file, CaptureOptions{}).Close())
	if r := readCapture(t, file.Bytes()); len(r) != 0 {
		t.Errorf("%+v", r)
	}
}

type fullDisk struct{ room int }

var errDiskFull = errors.New("disk full")

func (f *fullDisk) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, errDiskFull
	}
	return len(b), nil
}

func TestWriteErrorEndsCaptureOnly(t *testing.T) {
	calls := 0
	c := NewCapture(&fullDisk{room: 1 << 20}, CaptureOptions{OnError: func(err error) {
		calls++
		if !errors.Is(err, errDiskFull) {
			t.Errorf("OnError(%v)", err)
		}
	}})
	taps := []*Tap{c.Tap("a", passThrough{}), c.Tap("b", specPath(t, impair.Spec{Delay: 5}))}
	f := uswitch.Frame{Bytes: frameOf(t, datagram(true, make([]byte, 4000)))}
	n := 0
	for range 1000 {
		for _, tap := range taps {
			tap.Apply(0, f, func(time.Duration, uswitch.Frame) { n++ })
		}
	}
	if n != 2000 || calls != 1 {
		t.Errorf("%d of 2000 frames passed, OnError was called %d times", n, calls)
	}
	must.Fail(t, "Close", c.Close(), errDiskFull)
}

func TestTapsOfManySwitchesShareCapture(t *testing.T) {
	var file bytes.Buffer
	c := NewCapture(&file, CaptureOptions{})
	var wg sync.WaitGroup
	for i := range 4 {
		tap := c.Tap(string(rune('a'+i)), passThrough{})
		f := uswitch.Frame{Bytes: frameOf(t, datagram(true, []byte("x")))}
		wg.Go(func() {
			for range 200 {
				tap.Apply(0, f, func(time.Duration, uswitch.Frame) {})
			}
		})
	}
	wg.Wait()
	must.Do(t, c.Close())
	c.Tap("late", passThrough{}).Apply(0, uswitch.Frame{Bytes: make([]byte, 60)}, func(time.Duration, uswitch.Frame) {})
	if n := len(readCapture(t, file.Bytes())); n != 800 {
		t.Errorf("%d frames, want 800", n)
	}
}

// If Wireshark is installed, it must show comments and valid checksums.
func TestWiresharkShowsCommentsAndChecksums(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed: the file is only read with gopacket")
	}
	name := filepath.Join(t.TempDir(), "x.pcapng")
	f := must.Get(os.Create(name))(t)
	defer f.Close()
	c := NewCapture(f, CaptureOptions{})
	tap := c.Tap("host0", events(t, impair.Action{Kind: impair.Drop}))
	for i := range 2 {
		d := roce(i == 0, 5, 0)
		tap.Apply(time.Duration(i+1), uswitch.Frame{Bytes: partial(t, frameOf(t, d)), ChecksumPartial: true}, func(time.Duration, uswitch.Frame) {})
	}
	must.Do(t, c.Close())
	out := must.Get(exec.Command(tshark, "-r", name, "-o", "udp.check_checksum:TRUE", "-T", "fields", "-E", "separator=|",
		"-e", "frame.time_epoch", "-e", "frame.interface_name", "-e", "frame.comment", "-e", "infiniband.bth.psn", "-e", "udp.checksum.status").Output())(t)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "000000001|host0|fabrictest: lost by an event|5|") || !strings.Contains(lines[1], "000000002|host0||5|") {
		t.Errorf("tshark prints\n%s", out)
	}
	for _, l := range lines {
		if status := l[strings.LastIndex(l, "|")+1:]; status != "1" && status != "Good" {
			t.Errorf("checksum status %q in %s", status, l)
		}
	}
}
