package netns

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestExplainNamespaceErrorGivesReasonAndCure(t *testing.T) {
	for _, c := range []struct {
		err     error
		facts   map[string]string // sysctls and fields of /proc/self/status
		missing string            // file of /proc/self/ns
		want    string            // empty: the error is unchanged
	}{
		{unix.ENOSPC, map[string]string{"user/max_user_namespaces": "0"}, "", "limit user.max_user_namespaces is 0 (…no space left on device); as root: sysctl -w user.max_user_namespaces=15000"},
		{unix.ENOSPC, map[string]string{"user/max_user_namespaces": "100", "user/max_net_namespaces": "0"}, "", "sysctl -w user.max_net_namespaces=15000"},
		{unix.ENOSPC, nil, "", "nested too deep"},
		{unix.EPERM, map[string]string{"kernel/unprivileged_userns_clone": "0"}, "", "kernel.unprivileged_userns_clone=1"},
		{unix.EPERM, map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1"}, "", "AppArmor"},
		{unix.EACCES, map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1"}, "", "apparmor_restrict_unprivileged_userns=0"},
		{unix.EPERM, map[string]string{"Seccomp": "2"}, "", "--cap-add SYS_ADMIN"},
		{unix.EPERM, map[string]string{"NoNewPrivs": "1", "CapEff": "0000000000000000"}, "", "sandbox"},
		{unix.EPERM, map[string]string{"Seccomp": "0"}, "", "chroot"},
		{unix.EINVAL, nil, "user", "CONFIG_USER_NS"},
		{unix.EINVAL, nil, "net", "CONFIG_NET_NS"},
		{unix.EINVAL, nil, "", ""},
		{unix.ENOENT, nil, "", ""},
	} {
		look := func(name string) string { return c.facts[name] }
		m := machine{sysctl: look, status: look, exists: func(path string) bool { return path != "/proc/self/ns/"+c.missing }}
		cause := fmt.Errorf("start: %w", c.err)
		got := explainNamespaceError(cause, m)
		var why *UnavailableError
		switch {
		case c.want == "" && got != cause:
			t.Errorf("%v became %v", cause, got)
		case c.want == "":
		case !errors.As(got, &why) || !errors.Is(got, c.err) || strings.Contains(got.Error(), "\n"):
			t.Errorf("%v: %v", c.err, got)
		default:
			for part := range strings.SplitSeq(c.want, "…") {
				if !strings.Contains(got.Error(), part) {
					t.Errorf("%v with %v: %v, want %q", c.err, c.facts, got, part)
				}
			}
		}
	}
}

func TestExplainRDMAGivesCure(t *testing.T) {
	for err, want := range map[error]string{
		unix.EPROTONOSUPPORT: "CONFIG_INFINIBAND",
		unix.EPERM:           "run as root",
		unix.EEXIST:          unix.EEXIST.Error(),
	} {
		if got := explainRDMA(err, "rxe"); !errors.Is(got, err) || !strings.Contains(got.Error(), want) {
			t.Errorf("%v: %v, want %q", err, got, want)
		}
	}
	if got := explainRDMA(unix.EINVAL, "siw"); !loaded("siw") && !strings.Contains(got.Error(), "modprobe siw") {
		t.Errorf("without the module: %v", got)
	}
}

// The parameters are checked without the kernel, which may lack netem.
func TestNetemParametersUseKernelUnits(t *testing.T) {
	n := qdisc{
		rateBps: 8e9,
		netem: NetemSpec{
			Delay: time.Millisecond, Jitter: 64 * time.Microsecond,
			LossPPM: 1e6, DuplicatePPM: 500_000, ReorderPPM: 250_000, CorruptPPM: 1,
		},
	}.asNetem(netlink.QdiscAttrs{})
	// The netlink package converts microseconds and percent.
	want := netlink.NewNetem(netlink.QdiscAttrs{}, netlink.NetemQdiscAttrs{
		Latency: 1000, Jitter: 64, Loss: 100, Duplicate: 50, ReorderProb: 25, CorruptProb: 0.0001, Limit: 10_000, Gap: 1, Rate64: 1e9,
	})
	for name, pair := range map[string][2]uint32{
		"latency": {n.Latency, want.Latency}, "jitter": {n.Jitter, want.Jitter}, "loss": {n.Loss, want.Loss},
		"duplicate": {n.Duplicate, want.Duplicate}, "reorder": {n.ReorderProb, want.ReorderProb}, "corrupt": {n.CorruptProb, want.CorruptProb},
		"limit": {n.Limit, want.Limit}, "gap": {n.Gap, want.Gap},
	} {
		if d := int64(pair[0]) - int64(pair[1]); d < -300 || d > 300 { // the library rounds to 24 bits
			t.Errorf("%s is %d, want %d", name, pair[0], pair[1])
		}
	}
	if n.Rate64 != want.Rate64 {
		t.Errorf("rate is %d, want %d", n.Rate64, want.Rate64)
	}
	if ticks(time.Hour) != 1<<32-1 || probability(2e6) != 1<<32-1 {
		t.Error("what is too much is not the most")
	}
}
