// Package tshark has Wireshark's own dissectors read captures. It finds the
// programs, knows the options with which they read what fabrictest writes, and
// lists what they complain of.
package tshark

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

// ErrNotInstalled says that neither Wireshark nor tshark is installed.
var ErrNotInstalled = errors.New("neither wireshark nor tshark is on PATH: install one (Debian, Ubuntu: apt install wireshark; " +
	"Fedora: dnf install wireshark; macOS: brew install --cask wireshark)")

// heuristics guess what the payload of an RDMA message, or a datagram of
// datagram-iWARP, is. The programs here send none of these protocols, and Wireshark
// 4.0 calls every SEND malformed that is too short to be RPC over RDMA.
var heuristics = []string{
	"rpcrdma_infiniband", "rpcrdma_iwarp", "smb_direct_infiniband", "smb_direct_iwarp", "smcr_infiniband", "iser_infiniband",
	"sdp_infiniband", "fc_infiniband", "lnet_ib", "mellanox_eoib", "eth_over_ib", "cltp_udp",
}

// preferences are those that matter to RDMA: RoCEv2 leaves UDP checksums out, over
// IPv6 too (IBTA A17.3.2.4).
var preferences = []string{"udp.ignore_ipv6_zero_checksum:TRUE"}

// checks make the dissectors verify what they can.
var checks = []string{"ip.check_checksum:TRUE", "udp.check_checksum:TRUE", "tcp.check_checksum:TRUE"}

// Options returns the options with which tshark, and wireshark likewise, is to read
// a capture. Those that this version does not know are left out.
func Options(ctx context.Context, tshark, file string) []string {
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

// DefaultOptions are those of Wireshark 4, for where there is no tshark to ask.
func DefaultOptions() []string { return options(heuristics) }

var noSuchProtocol = regexp.MustCompile(`No such protocol ([\w.-]+)`)

func options(heuristics []string) (args []string) {
	for _, p := range preferences {
		args = append(args, "-o", p)
	}
	for _, h := range heuristics {
		args = append(args, "--disable-heuristic", h)
	}
	return args
}

// ExpertInfo is what tshark does not like about a packet.
type ExpertInfo struct {
	Packet int // its number in the file, from 1
	Info   string
	Text   string
}

func (c ExpertInfo) String() string {
	return fmt.Sprintf("packet %d, %s: %s", c.Packet, c.Info, c.Text)
}

// complaints is the display filter for packets that are malformed, that have an
// error (a wrong checksum is one), or that TCP's analysis finds odd. A warning is not
// looked at: that a connection was reset is one.
const complaints = "_ws.malformed || _ws.expert.severity >= 0x00800000 || tcp.analysis.flags"

// Check has tshark read a capture, and returns its complaints.
func Check(ctx context.Context, program, file string, options ...string) (all []ExpertInfo, err error) {
	args := append([]string{"-r", file}, options...)
	for _, c := range checks {
		args = append(args, "-o", c)
	}
	args = append(args, "-Y", complaints, "-T", "fields", "-E", "separator=/t",
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
			return nil, fmt.Errorf("tshark -r %s: what is %q?", file, line)
		}
		all = append(all, ExpertInfo{Packet: n, Info: cells[1], Text: cells[2]})
	}
	return all, nil
}
