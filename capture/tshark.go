package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrNotInstalled means that neither Wireshark nor tshark is on PATH.
var ErrNotInstalled = errors.New("neither wireshark nor tshark is on PATH: install one (Debian, Ubuntu: apt install wireshark; " +
	"Fedora: dnf install wireshark; macOS: brew install --cask wireshark)")

// heuristics are the heuristic dissectors to disable. fabrictest sends none of these
// protocols, and Wireshark 4.0 reports every SEND as malformed that is too short to be
// RPC over RDMA.
var heuristics = []string{
	"rpcrdma_infiniband", "rpcrdma_iwarp", "smb_direct_infiniband", "smb_direct_iwarp", "smcr_infiniband", "iser_infiniband",
	"sdp_infiniband", "fc_infiniband", "lnet_ib", "mellanox_eoib", "eth_over_ib", "cltp_udp",
}

// preferences: RoCEv2 has no UDP checksums, not even over IPv6 (IBTA A17.3.2.4).
var preferences = []string{"udp.ignore_ipv6_zero_checksum:TRUE"}

// checksumPreferences enable the verification of checksums.
var checksumPreferences = []string{"ip.check_checksum:TRUE", "udp.check_checksum:TRUE", "tcp.check_checksum:TRUE"}

// TsharkOptions returns the options for tshark or wireshark to read a capture. It probes the
// installed version and omits heuristics that it does not know.
func TsharkOptions(ctx context.Context, tshark, file string) []string {
	names := slices.Clone(heuristics)
	for {
		args := options(names)
		probe := exec.CommandContext(ctx, tshark, append([]string{"-r", file, "-c", "1"}, args...)...)
		out, err := probe.CombinedOutput()
		unknown := noSuchProtocol.FindSubmatch(out)
		if err == nil || unknown == nil {
			return args
		}
		i := slices.Index(names, string(unknown[1]))
		if i < 0 {
			return args
		}
		names = slices.Delete(names, i, i+1)
	}
}

// DefaultTsharkOptions returns the options for Wireshark 4, without probing.
func DefaultTsharkOptions() []string { return options(heuristics) }

var noSuchProtocol = regexp.MustCompile(`No such protocol ([\w.-]+)`)

// options returns the command-line options that set preferences and disable heuristics.
func options(heuristics []string) (args []string) {
	for _, p := range preferences {
		args = append(args, "-o", p)
	}
	for _, h := range heuristics {
		args = append(args, "--disable-heuristic", h)
	}
	return args
}

// ExpertInfo is a problem that tshark reports for a packet.
type ExpertInfo struct {
	Packet int // number in the file, from 1
	Info   string
	Text   string
}

func (c ExpertInfo) String() string {
	return fmt.Sprintf("packet %d, %s: %s", c.Packet, c.Info, c.Text)
}

// problemFilter is the display filter for malformed packets, expert info of severity
// error (such as a wrong checksum), and TCP analysis flags. It excludes warnings, such
// as a connection reset.
const problemFilter = "_ws.malformed || _ws.expert.severity >= 0x00800000 || tcp.analysis.flags"

// CheckWithTshark runs tshark on a capture and returns the packets that match problemFilter.
func CheckWithTshark(ctx context.Context, program, file string, options ...string) (all []ExpertInfo, err error) {
	args := append([]string{"-r", file}, options...)
	for _, c := range checksumPreferences {
		args = append(args, "-o", c)
	}
	args = append(args, "-Y", problemFilter, "-T", "fields", "-E", "separator=/t",
		"-e", "frame.number", "-e", "_ws.col.Info", "-e", "_ws.expert.message")
	cmd := exec.CommandContext(ctx, program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("tshark -r %s: %w\n%s", file, err, stderr.Bytes())
	}
	for line := range strings.Lines(string(out)) {
		cells := append(strings.SplitN(strings.TrimRight(line, "\n"), "\t", 3), "", "")
		n, err := strconv.Atoi(cells[0])
		if err != nil {
			return nil, fmt.Errorf("tshark -r %s: unexpected output %q", file, line)
		}
		all = append(all, ExpertInfo{Packet: n, Info: cells[1], Text: cells[2]})
	}
	return all, nil
}
