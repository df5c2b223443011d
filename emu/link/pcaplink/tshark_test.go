package pcaplink

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
)

// tshark runs Wireshark's own decoder on a capture.
func tshark(t *testing.T, file []byte, args ...string) string {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed: captures of streams are only checked with gopacket's decoder")
	}
	name := filepath.Join(t.TempDir(), "f.pcapng")
	must.Do(t, os.WriteFile(name, file, 0o600))
	cmd := exec.Command(program, append([]string{"-r", name, "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, stderr.Bytes())
	}
	return string(out)
}

// followed returns the bytes of both directions of the first stream, as tshark reassembles
// them.
func followed(t *testing.T, file []byte) (up, down []byte) {
	t.Helper()
	for line := range strings.Lines(tshark(t, file, "-q", "-z", "follow,tcp,raw,0")) {
		to := &up
		if strings.HasPrefix(line, "\t") { // the second node's
			to = &down
		}
		if b, err := hex.DecodeString(strings.TrimSpace(line)); err == nil {
			*to = append(*to, b...)
		}
	}
	return up, down
}

func TestTsharkReassemblesStreams(t *testing.T) {
	for _, tc := range []struct {
		tap, v6 bool
		framing Framing
	}{{false, false, RawIP}, {false, true, Ethernet}, {true, false, Ethernet}, {true, true, RawIP}} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			file := captured(t, 5, tc.v6, tc.tap, Options{Framing: tc.framing}, sim.StreamConfig{CutPPM: 300_000})
			up, down := followed(t, file)
			if !bytes.Equal(up, text(20_000)) || !bytes.Equal(down, text(30_000)[7:]) {
				t.Errorf("it put together %d and %d bytes, or others", len(up), len(down))
			}
			// Checksums: 1 is good. Whatever looks odd (a gap, a retransmission, an
			// acknowledgement of what was never sent) has an analysis flag.
			bad := tshark(t, file, "-Y", "tcp.checksum.status != 1 || ip.checksum.status != 1 || tcp.analysis.flags", "-T", "fields", "-e", "frame.number", "-e", "_ws.col.Info")
			if bad != "" {
				t.Errorf("it finds fault with\n%s", bad)
			}
		})
	}
}
