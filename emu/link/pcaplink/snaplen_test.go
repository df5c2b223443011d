package pcaplink

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
)

// sendOnly returns a RoCEv2 SEND_ONLY with a payload, its ICRC left out of
// account: no reader here checks it.
func sendOnly(payload int) string {
	bth := []byte{0x04, 0x40, 0xff, 0xff, 0, 0, 0, 0x11, 0x80, 0, 0, 0}
	binary.BigEndian.PutUint32(bth[8:], 0x80000abc)
	return string(append(bth, make([]byte, payload+4)...))
}

func TestSnapLenCutsPacketsAndKeepsTheirLength(t *testing.T) {
	d := datagram("10.0.0.1:50000", "10.0.0.2:4791", sendOnly(4096))
	short := datagram("10.0.0.1:50000", "10.0.0.2:4791", sendOnly(0))
	whole, wholeShort := len(RawIP.appendFrame(nil, &d)), len(RawIP.appendFrame(nil, &short))
	for _, tc := range []struct{ snap, long, short int }{
		{0, whole, wholeShort}, {-1, whole, wholeShort}, {128, 128, wholeShort}, {whole, whole, wholeShort},
	} {
		var file bytes.Buffer
		c := NewCapture(&file, Options{SnapLen: tc.snap})
		i := c.Interface("x")
		i.Write(1, Outbound, &d)
		i.Write(2, Outbound, &short)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := pcapgo.NewNgReader(&file, pcapgo.DefaultNgReaderOptions)
		if err != nil {
			t.Fatal(err)
		}
		for n, want := range [][2]int{{tc.long, whole}, {tc.short, wholeShort}} {
			data, ci, err := r.ReadPacketData()
			if err != nil || len(data) != want[0] || ci.CaptureLength != want[0] || ci.Length != want[1] {
				t.Errorf("snap length %d, packet %d: %d bytes of %d (%v), want %d of %d", tc.snap, n, len(data), ci.Length, err, want[0], want[1])
			}
		}
		if intf, err := r.Interface(0); err != nil || int(intf.SnapLength) != max(0, tc.snap) {
			t.Errorf("snap length %d: the file says %d, %v", tc.snap, intf.SnapLength, err)
		}
	}
}

// Where Wireshark is installed, it must still read the transport header of a
// packet that was cut behind it.
func TestCutPacketIsStillDissected(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	name := filepath.Join(t.TempDir(), "cut.pcapng")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := NewCapture(f, Options{SnapLen: 128})
	d := datagram("10.0.0.1:50000", "10.0.0.2:4791", sendOnly(4096))
	c.Interface("x").Write(1, Outbound, &d)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tshark, "-r", name, "-T", "fields", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn", "-e", "frame.len").CombinedOutput()
	if want := "4\t2748\t4140"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("tshark: %v, %q, want %q", err, out, want)
	}
}
