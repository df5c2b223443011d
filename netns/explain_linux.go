package netns

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// machine reads the settings that explain errors; tests replace it.
type machine struct {
	sysctl func(name string) string  // empty if there is none
	status func(field string) string // of /proc/self/status
	exists func(path string) bool
}

var thisMachine = machine{
	sysctl: readSysctl,
	status: statusField,
	exists: func(path string) bool { _, err := os.Stat(path); return err == nil },
}

// explainNamespaceError turns an error of creating namespaces into an
// UnavailableError with its reason. Other errors are returned unchanged.
func explainNamespaceError(err error, m machine) error {
	var reason, cure string
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		reason, cure = m.explainLimits()
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		reason, cure = m.explainPermissions()
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		for kind, config := range map[string]string{"user": "USER_NS", "net": "NET_NS", "pid": "PID_NS"} {
			if !m.exists("/proc/self/ns/" + kind) {
				reason = "this kernel was built without CONFIG_" + config
				cure = "use a kernel that has it, as those of all distributions do"
			}
		}
	}
	if reason == "" {
		return err
	}
	return &UnavailableError{Reason: reason, Cure: cure, Err: err}
}

// explainLimits explains why creating a namespace failed with ENOSPC or EUSERS.
func (m machine) explainLimits() (reason, cure string) {
	for _, kind := range []string{"user", "net", "pid", "mnt"} {
		name := fmt.Sprintf("user/max_%s_namespaces", kind)
		if v := m.sysctl(name); v == "0" {
			dotted := strings.ReplaceAll(name, "/", ".")
			return fmt.Sprintf("the limit %s is 0", dotted), fmt.Sprintf("as root: sysctl -w %s=15000", dotted)
		}
	}
	return "a limit on namespaces is reached, or they are nested too deep",
		"see sysctl -a -r 'user.max_.*_namespaces', and whether old runs are still alive: lsns"
}

// explainPermissions explains why creating a namespace failed with EPERM or EACCES.
func (m machine) explainPermissions() (reason, cure string) {
	switch {
	case m.sysctl("kernel/unprivileged_userns_clone") == "0":
		return "ordinary users may not make user namespaces here",
			"as root: sysctl -w kernel.unprivileged_userns_clone=1; or run as root"
	case m.sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "AppArmor gives ordinary users no rights in user namespaces",
			"as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or install a profile for this program that allows userns; or run as root"
	case m.status("Seccomp") == "2":
		return "a seccomp filter, such as that of a container, forbids it",
			"start the container with --cap-add SYS_ADMIN --cap-add NET_ADMIN, or with --security-opt seccomp=unconfined"
	case m.status("NoNewPrivs") == "1" && m.status("CapEff") == "0000000000000000":
		return "the process may not gain privileges, and a security module refuses it user namespaces",
			"run it outside of that sandbox, or as root"
	default:
		return "this process may not make user namespaces (it runs in a chroot, or a security module forbids it)",
			"run it outside of a chroot, or as root, with CAP_SYS_ADMIN and CAP_NET_ADMIN"
	}
}

// statusField returns a field of /proc/self/status; empty if there is none.
func statusField(name string) string {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if key, value, _ := strings.Cut(line, ":"); key == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
