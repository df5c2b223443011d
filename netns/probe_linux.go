package netns

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Available returns nil if this process can create network namespaces, directly or in a user
// namespace, and veth pairs in them; else an error with the reason and the remedy.
func Available() error {
	inside, err := probeUnshared()
	if err != nil {
		return err
	}
	for _, c := range inside {
		if c.Name == vethName && c.State == No {
			return &UnavailableError{Reason: "veth: " + c.Reason, Cure: c.Cure, Err: errors.ErrUnsupported}
		}
	}
	return nil
}

// Probe tests the features of this machine, in temporary namespaces.
func Probe() []Capability {
	all := []Capability{
		tryNamespace("user namespaces", "a fabric without being root", unix.CLONE_NEWUSER),
		tryNamespace("network namespaces", "hosts, each with a network of its own", unix.CLONE_NEWNET),
		tryNamespace("PID namespaces", "that nothing survives a run that was killed", unix.CLONE_NEWPID),
	}
	inside, err := probeUnshared()
	if err != nil {
		// The probes of namespaces above report the reason.
		for _, p := range probes {
			inside = append(inside, Capability{
				Name: p.name, For: p.use, State: No,
				Reason: "there are no namespaces to try it in", Cure: "see above",
			})
		}
	}
	all = append(all, inside...)
	all = append(all, probeSoftRDMA("rdma_rxe", "rxe"), probeSoftRDMA("siw", "siw"))
	return append(all, probeLimits()...)
}

// tryNamespace tests whether a process can be started in a new namespace of one
// kind, which is in a new user namespace if this process is unprivileged.
func tryNamespace(name, use string, kind uintptr) Capability {
	c := Capability{Name: name, For: use, State: Yes}
	if self, _ := os.Readlink("/proc/self"); kind == unix.CLONE_NEWUSER && self != strconv.Itoa(os.Getpid()) {
		// The UID map is written to a file of /proc, by process ID.
		c.State, c.Reason = Limited, "it cannot be tried: /proc is that of another PID namespace"
		return c
	}
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{probeName, probeExit}}
	dieWithParent(cmd)
	cmd.SysProcAttr.Cloneflags = kind
	if !privileged() || kind == unix.CLONE_NEWUSER {
		asRootOfUserNamespace(cmd.SysProcAttr)
	}
	err := startOnPermanentThread(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	var why *UnavailableError
	switch {
	case errors.As(err, &why):
		c.State, c.Cure = No, why.Cure
		c.Reason = fmt.Sprintf("%s (%v)", why.Reason, why.Err)
	case err != nil:
		c.State, c.Reason, c.Cure = No, err.Error(), "run as root"
	}
	return c
}

// probeUnshared starts this program in new namespaces to run the probes, and returns their results.
func probeUnshared() ([]Capability, error) {
	var out, errOut bytes.Buffer
	cmd := &exec.Cmd{}
	setNamespaceFlags(cmd, []string{probeName})
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := startOnPermanentThread(cmd); err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("probe in new namespaces: %w: %s", err, strings.TrimSpace(errOut.String()))
	}
	var found []Capability
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		return nil, fmt.Errorf("probe in new namespaces: %w", err)
	}
	return found, nil
}

// probeSoftRDMA checks for a software RDMA module of the kernel. It does not load the module.
func probeSoftRDMA(module, kind string) Capability {
	c := Capability{
		Name: "kernel " + kind, For: "the kernel's RDMA in software as a device under test",
		State: Yes, Cure: "as root: modprobe " + module,
	}
	switch {
	case !loaded(module) && !installed(module):
		c.State, c.Reason = No, "this kernel has no module "+module
		c.Cure = "use a distribution's kernel with its extra modules, or a virtual machine that has one"
	case !loaded(module):
		c.State, c.Reason = Limited, "the module is there, but not loaded"
	case !privileged() || !inInitialUserNamespace():
		c.State, c.Reason, c.Cure = Limited, "only real root may create such devices", "run as root"
	default:
		c.Cure = ""
	}
	return c
}

// inInitialUserNamespace reports whether this is the initial user namespace,
// which maps every UID to itself.
func inInitialUserNamespace() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && slices.Equal(strings.Fields(string(b)), []string{"0", "0", "4294967295"})
}

// installed reports whether the files of depmod list a module.
func installed(module string) bool {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return false
	}
	for _, list := range []string{"modules.dep", "modules.builtin"} {
		b, err := os.ReadFile("/lib/modules/" + unix.ByteSliceToString(uts.Release[:]) + "/" + list)
		if err == nil && bytes.Contains(b, []byte("/"+module+".ko")) {
			return true
		}
	}
	return false
}

// probeLimits reports system limits that affect fabrics. They are the same in all namespaces.
func probeLimits() []Capability {
	return []Capability{
		probeSysctlMin("receive buffers", "bursts of packets that a busy receiver does not lose", "net/core/rmem_max", 4<<20),
		probeSysctlMin("send buffers", "batches of packets in one system call", "net/core/wmem_max", 4<<20),
		probeDescriptors(),
	}
}

// probeSysctlMin reports whether a sysctl is at least want.
func probeSysctlMin(name, use, sysctl string, want int) Capability {
	c := Capability{Name: name, For: use, State: Yes}
	dotted := strings.ReplaceAll(sysctl, "/", ".")
	got, err := strconv.Atoi(readSysctl(sysctl))
	switch {
	case err != nil:
		c.State, c.Reason = Limited, dotted+" cannot be read here"
	case got < want:
		c.State, c.Reason = Limited, fmt.Sprintf("%s is %d, and %d is better", dotted, got, want)
		c.Cure = fmt.Sprintf("as root: sysctl -w %s=%d", dotted, want)
	default:
		c.Reason = fmt.Sprintf("%s is %d", dotted, got)
	}
	return c
}

// probeDescriptors reports the hard limit of open files, to which Go programs raise the soft limit.
func probeDescriptors() Capability {
	c := Capability{Name: "descriptors", For: "large fabrics: each host takes some ten", State: Yes}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		c.State, c.Reason = Limited, err.Error()
		return c
	}
	c.Reason = fmt.Sprintf("%d files may be open", lim.Max)
	if lim.Max < 4096 {
		c.State, c.Cure = Limited, "ulimit -Hn 65536, in the shell of root or in /etc/security/limits.conf"
	}
	return c
}
