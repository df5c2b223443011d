package capture

import (
	"context"
	"errors"
	"os/exec"
	"regexp"
	"slices"
)

// ErrNotInstalled means that neither Wireshark nor tshark is on PATH.
var ErrNotInstalled = errors.New("neither wireshark nor tshark is on PATH: install one (Debian, Ubuntu: apt install wireshark; " +
	"Fedora: dnf install wireshark; macOS: brew install --cask wireshark)")

// heuristics are the heuristic dissectors to disable. fabrictest sends none of these protocols, and
// Wireshark 4.0 reports every SEND too short for RPC over RDMA as malformed.
var heuristics = []string{
	"rpcrdma_infiniband", "rpcrdma_iwarp", "smb_direct_infiniband", "smb_direct_iwarp", "smcr_infiniband", "iser_infiniband",
	"sdp_infiniband", "fc_infiniband", "lnet_ib", "mellanox_eoib", "eth_over_ib", "cltp_udp",
}

// TsharkOptions returns the options for tshark or wireshark to read a capture. They disable
// heuristic dissectors, which may take messages for those of other protocols. tshark fails at the
// name of a dissector that it does not know, so TsharkOptions tries the options on the file and
// leaves out such names.
func TsharkOptions(ctx context.Context, tshark, file string) []string {
	names := slices.Clone(heuristics)
	for {
		args := tsharkArgs(names)
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

var noSuchProtocol = regexp.MustCompile(`No such protocol ([\w.-]+)`)

// tsharkArgs returns the command-line options that disable heuristic dissectors, and accept packets
// without a UDP checksum over IPv6, which RoCEv2 sends (IBTA A17.3.2.4).
func tsharkArgs(heuristics []string) []string {
	args := make([]string, 0, 2+2*len(heuristics))
	args = append(args, "-o", "udp.ignore_ipv6_zero_checksum:TRUE")
	for _, h := range heuristics {
		args = append(args, "--disable-heuristic", h)
	}
	return args
}
