package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/report/peers"
)

// peer is a runtime or program that is measured beside our runtime.
type peer struct {
	name     string
	packages string // of Debian and its derivatives
	find     func() (programs, error)
	has      func(m *measurement) bool // whether it has a measurement
	run      func(ctx context.Context, f *fabric, p *programs) (turn, error)
}

// programs are the programs of an installed peer. A peer of MPI has a compiler and a launcher of
// ranks; the others have a program that is server or client.
type programs struct {
	Peer, Version               string
	Compiler, Launcher, Program string
	Yields                      bool          // compiled with c/yield.c
	Measurements                []measurement // that the peer has
}

// MPICH, and MPICH with a function that yields the processor (c/yield.c), which none of its options does:
// more ranks than processors spin in vain otherwise.
const (
	mpich         = "MPICH"
	mpichYielding = "MPICH-yielding"
)

// hasTargets reports whether the ratios to a peer have targets.
func hasTargets(peer string) bool { return peer == mpich || peer == mpichYielding }

// allPeers returns the table of peers.
func allPeers() []peer {
	every := func(*measurement) bool { return true }
	pairs := func(m *measurement) bool { return isPairKind(m.Kind) }
	collectives := func(m *measurement) bool { return !isPairKind(m.Kind) }
	pingpongs := func(m *measurement) bool { return m.Kind == pingpong }
	longStreams := func(m *measurement) bool { return m.Kind == stream && m.Bytes >= minIperfBytes }
	return []peer{
		{mpich, "mpich libmpich-dev gcc libc6-dev", findMPICH, every, runMPICH},
		{mpichYielding, "mpich libmpich-dev gcc libc6-dev", findYieldingMPICH, collectives, runMPICH},
		{"Open MPI", "openmpi-bin libopenmpi-dev gcc libc6-dev", findOpenMPI, every, runOpenMPI},
		{"UCX", "ucx-utils", findUCX, pairs, ucxTool.run},
		{"libfabric", "libfabric-bin", findLibfabric, pingpongs, libfabricTool.run},
		{"iperf3", "iperf3", findIperf, longStreams, iperfTool.run},
	}
}

// findPeers finds the programs of the selected peers; an empty selection is all peers. It also
// returns the peers that are not installed, with the reason and how to install them.
func findPeers(selected []string, measurements []measurement) (found []programs, skipped []peers.Skipped, err error) {
	unknown := map[string]bool{}
	for _, s := range selected {
		unknown[strings.ToLower(s)] = true
	}
	var names []string
	for _, p := range allPeers() {
		names = append(names, p.name)
		key := strings.ToLower(p.name)
		if len(selected) > 0 && !unknown[key] {
			continue
		}
		delete(unknown, key)
		if !slices.ContainsFunc(measurements, func(m measurement) bool { return p.has(&m) }) {
			if len(selected) > 0 {
				return nil, nil, fmt.Errorf("%s has none of these measurements", p.name)
			}
			continue
		}
		progs, err := p.find()
		if err != nil {
			skipped = append(skipped, peers.Skipped{Name: p.name, Reason: err.Error(), Install: "apt-get install -y --no-install-recommends " + p.packages})
			continue
		}
		progs.Peer = p.name
		for _, m := range measurements {
			if p.has(&m) {
				progs.Measurements = append(progs.Measurements, m)
			}
		}
		found = append(found, progs)
	}
	if len(unknown) > 0 {
		return nil, nil, fmt.Errorf("%q: the peers are %s", selected, strings.Join(names, ", "))
	}
	return found, skipped, nil
}

// findMPICH finds the programs of MPICH, by Debian's unambiguous names first.
func findMPICH() (p programs, err error) {
	if p, err = findMPI("mpich", "hydra"); err != nil {
		return p, err
	}
	text := output(p.Launcher, "--version")
	if !strings.Contains(text, "HYDRA") {
		return p, fmt.Errorf("%s is not the launcher of MPICH (hydra)", p.Launcher)
	}
	p.Version = "MPICH " + versionIn(text)
	if !strings.Contains(text, "ch4:ucx") {
		p.Version += " (not built with ch4:ucx: its transports are unknown)"
	}
	return p, nil
}

// findYieldingMPICH finds the programs of MPICH, for ranks that yield.
func findYieldingMPICH() (programs, error) {
	p, err := findMPICH()
	p.Yields, p.Version = true, p.Version+", yielding"
	return p, err
}

// findOpenMPI finds the programs of Open MPI.
func findOpenMPI() (p programs, err error) {
	if p, err = findMPI("openmpi", "openmpi"); err != nil {
		return p, err
	}
	text := output(p.Launcher, "--version")
	if !strings.Contains(text, "OpenRTE") && !strings.Contains(text, "Open MPI") {
		return p, fmt.Errorf("%s is not the launcher of Open MPI", p.Launcher)
	}
	p.Version = "Open MPI " + versionIn(text)
	return p, nil
}

// findMPI finds the compiler and the launcher of an MPI, whose names have the suffix that Debian
// gives them or else none. It checks that the compiler works: its headers may be missing.
func findMPI(suffix, launcherSuffix string) (p programs, err error) {
	if p.Compiler, err = lookPath("mpicc."+suffix, "mpicc"); err != nil {
		return p, err
	}
	if p.Launcher, err = lookPath("mpiexec."+suffix, "mpiexec."+launcherSuffix, "mpiexec"); err != nil {
		return p, err
	}
	cmd := exec.Command(p.Compiler, "-x", "c", "-fsyntax-only", "-")
	cmd.Stdin = strings.NewReader("#include <mpi.h>\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		first, _, _ := strings.Cut(string(out), "\n")
		return p, fmt.Errorf("%s cannot compile an MPI program: %w: %s", p.Compiler, err, first)
	}
	return p, nil
}

// findUCX finds ucx_perftest, and the version of UCX.
func findUCX() (p programs, err error) {
	p.Program, err = lookPath("ucx_perftest")
	p.Version = "UCX " + versionIn(output("ucx_info", "-v"))
	return p, err
}

// findLibfabric finds fi_pingpong, and the version of libfabric.
func findLibfabric() (p programs, err error) {
	p.Program, err = lookPath("fi_pingpong")
	p.Version = "libfabric " + versionIn(output("fi_info", "--version"))
	return p, err
}

// findIperf finds iperf3, and its version.
func findIperf() (p programs, err error) {
	p.Program, err = lookPath("iperf3")
	p.Version = "iperf3 " + versionIn(output("iperf3", "--version"))
	return p, err
}

// output returns what a program prints, nothing if it cannot be run.
func output(program string, args ...string) string {
	out, _ := exec.Command(program, args...).CombinedOutput()
	return string(out)
}

// versionIn returns the first word of a program's output that begins with a digit.
func versionIn(text string) string {
	for _, word := range strings.Fields(text) {
		if '0' <= word[0] && word[0] <= '9' {
			return word
		}
	}
	return "of unknown version"
}

// lookPath returns the path of the first of several programs that is on PATH.
func lookPath(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no program %s found", strings.Join(names, " or "))
}

var (
	//go:embed c/ranks.c
	ranksInC []byte
	//go:embed c/yield.c
	yieldInC []byte
)

// compile compiles the program of the ranks of an MPI, which is in C, into dir. Peers without a
// compiler have their program already.
func (p *programs) compile(ctx context.Context, dir string) error {
	if p.Compiler == "" {
		return nil
	}
	p.Program = filepath.Join(dir, strings.ReplaceAll(p.Peer, " ", "")+".ranks")
	args := []string{"-O2", "-o", p.Program}
	for name, text := range p.sources() {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
		args = append(args, name)
	}
	args = append(args, "-rdynamic", "-ldl") // shared libraries call functions of the program
	out, err := exec.CommandContext(ctx, p.Compiler, args...).CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("%s cannot compile the ranks: %w", p.Compiler, err), errors.New(string(out)))
	}
	return nil
}

// sources returns the source files of the ranks.
func (p *programs) sources() map[string][]byte {
	files := map[string][]byte{"ranks.c": ranksInC}
	if p.Yields {
		files["yield.c"] = yieldInC
	}
	return files
}
