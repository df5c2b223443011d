package interop_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance/interop"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/mutant"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestMain(m *testing.M) {
	testutil.SetParallel(16) // the tests mostly wait for timeouts
	testutil.NamespaceMain(m)
}

// openEnd opens an emulated device on a host.
func openEnd(t *testing.T, h *testutil.Host, provider string, defects ...string) *interop.End {
	t.Helper()
	p := must.Get(nics.Find(provider))(t)
	opener := must.Get(p.NewOpener(nics.Setup{Defects: defects}))(t)
	e := &interop.End{
		Name: provider, Devices: make(map[interop.Family]verbs.Context), Addrs: map[interop.Family]netip.Addr{interop.IPv4: h.V4, interop.IPv6: h.V6},
	}
	for family, addr := range e.Addrs {
		if !addr.IsValid() {
			continue
		}
		if err := h.Do(func() (err error) {
			e.Devices[family], err = opener.OnSockets(nics.NICConfig{Name: provider, Addr: addr})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Devices[family].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return e
}

const mtu = 1500

// suite returns a suite of two emulated devices and its cases. Theirs may have defects.
func suite(t *testing.T, timeout time.Duration, provider string, defects ...string) (*interop.Suite, []interop.Case) {
	t.Helper()
	a, b := testutil.HostPair(t, mtu)
	return withCases(t, &interop.Suite{Ours: openEnd(t, a, provider), Theirs: openEnd(t, b, provider, defects...), Timeout: timeout})
}

func withCases(t *testing.T, s *interop.Suite) (*interop.Suite, []interop.Case) {
	t.Helper()
	packet := must.Get(s.PacketPayload())(t)
	transport := s.Ours.Devices[interop.IPv4].Info().Transport
	if transport == verbs.TransportIWARP {
		packet = mtu - 72
	}
	return s, interop.Cases(transport, packet)
}

func TestDevicesWithoutDefectsPass(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"softroce", "softiwarp"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			s, cases := suite(t, 0, provider)
			passed := make(map[string]bool)
			s.OnResult = func(r interop.Result) {
				passed[r.Case.Op] = passed[r.Case.Op] || r.Verdict == interop.Pass
				if r.Verdict == interop.Fail {
					t.Errorf("%s: %s", r.Case.Name(), r.Why)
				}
			}
			began := time.Now()
			failed, err := s.Run(t.Context(), cases)
			if failed != 0 || err != nil {
				t.Errorf("%d of %d failed, %v", failed, len(cases), err)
			}
			t.Logf("%d exchanges in %v", len(cases), time.Since(began))
			for _, c := range cases {
				if !passed[c.Op] && !(provider == "softiwarp" && (c.Op == "atomic-write" || c.Op == "flush")) {
					t.Errorf("no case of %s passed", c.Op)
				}
			}
		})
	}
}

// shortTimeout is the timeout of suites whose defect prevents an event. Others use the default.
const shortTimeout = 2 * time.Second

// runMatching runs the cases that match, and returns the failed ones.
func runMatching(t *testing.T, s *interop.Suite, cases []interop.Case, pattern string) (failed []interop.Result) {
	t.Helper()
	matching := must.Get(interop.Matching(cases, pattern))(t)
	s.OnResult = func(r interop.Result) {
		if r.Verdict == interop.Fail {
			failed = append(failed, r)
		}
	}
	n, err := s.Run(t.Context(), matching)
	if err != nil && n == 0 || n != len(failed) {
		t.Errorf("%s: %d failed, %d reported, %v", pattern, n, len(failed), err)
	}
	return failed
}

func TestDefectsMakeCasesFail(t *testing.T) {
	t.Parallel()
	const roce, iwarp = "softroce", "softiwarp"
	for _, m := range []defectCase{
		{roce, "WCLost", "send/theirs/hand/ipv4", "no completion"},
		{roce, "WCDoubled", "send/theirs/hand/ipv4", "unexpected completions"},
		{roce, "AtomicOperandsSwapped", "compare-swap/theirs/hand/ipv4", "octets differ"},
		{iwarp, "WCLost", "write/theirs/cm-ours/ipv4/65536", "no completion"},
		{iwarp, "WCDoubled", "read/theirs/cm-theirs/ipv6", "unexpected completions"},
	} {
		t.Run(m.provider+"/"+m.defect+"/"+strings.SplitN(m.pattern, "/", 2)[0], func(t *testing.T) {
			t.Parallel()
			m.mustFail(t)
		})
	}
}

// Each mutant makes a case fail. Package defects runs the test in a build with mutants.
func TestMutantsMakeCasesFail(t *testing.T) {
	if len(mutant.Names()) == 0 {
		t.Skip("built without mutants; the conform step of CI runs it with them")
	}
	for _, m := range []defectCase{
		{"softroce", "AtomicsWrong", "compare-swap/ours/hand/ipv4", "octets differ"},
		{"softroce", "BindDefects", "window-1/ours/hand/ipv4/5000", "want [IBV_WC_REM_ACCESS_ERR]"},
		{"softroce", "MW2Refused", "window-2/ours/hand/ipv4/64", ""},
		{"softroce", "InvalidateLate", "send-inv/ours/hand/ipv4/64", "want [IBV_WC_REM_ACCESS_ERR]"},
		{"softroce", "WriteConsumes", "write/ours/hand/ipv4/1", "no completion"},
		{"softroce", "EmptyMessagesIgnored", "send/ours/hand/ipv4/0", "no completion"},
		{"softroce", "WCLengthZero", "send/ours/hand/ipv6/1", "want {op:128 size:1 "},
		{"softroce", "WCOpcodeZero", "read/theirs/hand/ipv6/1", "want a success of IBV_WC_RDMA_READ"},
		{"softroce", "WCFlagsLost", "send-imm/ours/hand/ipv4/1", "flags:2 imm:27444196"},
		{"softroce", "WCFlagsLost", "send-inv/ours/hand/ipv4/64", "does not have the invalidate flag"},
		{"softroce", "ImmSwapped", "write-imm/ours/hand/ipv4/1", "want {op:129 size:1 flags:2 imm:27444196"},
		{"softroce", "SrcQPLost", "ud-send/ours/hand/ipv6/1", "the receive completed with"},
		{"softroce", "AtomicAddendCut", "fetch-add/theirs/hand/ipv4", "octets differ"},
		{"softroce", "FenceIgnored", "read-many/theirs/hand/ipv4/5000", "octets differ"},
		{"softroce", "LocalInvNoop", "window-2/ours/hand/ipv4/64", "want [IBV_WC_REM_ACCESS_ERR]"},
		{"softroce", "EmptySendRefused", "send/theirs/hand/ipv4/0", "could not post a request"},
		{"softroce", "PrivateDataLost", "send/ours/cm-ours/ipv4/1", "the private data of the connection request is"},
		{"softroce", "EndUnnoticed", "send/ours/cm-ours/ipv4/1", "could not wait for the disconnect"},
		{"softiwarp", "LocalInvNoop", "window-2/ours/cm-ours/ipv4/64", "want [IBV_WC_REM_ACCESS_ERR"},
		{"softiwarp", "ListenAddrZero", "send/ours/cm-ours/ipv4/1", "could not connect"},
	} {
		t.Run(m.provider+"/"+m.defect, func(t *testing.T) {
			if !mutant.Select(m.defect) {
				t.Fatal("no such mutant")
			}
			defer mutant.Select("")
			m.mustFail(t)
		})
	}
	t.Run("softroce/ClosedCount", func(t *testing.T) {
		mutant.Select("ClosedCount") // 512 objects of each kind
		defer mutant.Select("")
		s, _ := suite(t, 0, "softroce")
		result, err := s.RunConnections(t.Context(), 600, nil)
		if err != nil || result.OK() || !strings.Contains(result.Failed[0], "out of resources") {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

// defectCase is cases that must fail with an error on a device with a defect.
type defectCase struct{ provider, defect, pattern, errText string }

func (m *defectCase) mustFail(t *testing.T) {
	t.Helper()
	timeout := time.Duration(0)
	if strings.HasPrefix(m.errText, "no completion") || strings.HasPrefix(m.errText, "could not") {
		timeout = shortTimeout
	}
	s, cases := suite(t, timeout, m.provider, m.defect)
	failed := runMatching(t, s, cases, m.pattern)
	for _, r := range failed {
		if strings.Contains(r.Why, m.errText) {
			return
		}
	}
	t.Errorf("%s did not cause the error %q: %v", m.defect, m.errText, failed)
}

// corruptingDevice is a device that flips a bit of memory whenever a completion is polled.
type corruptingDevice struct {
	verbs.Context
	at  int    // offset of the octet in the area
	buf []byte // of the last region
}

type corruptingPD struct {
	verbs.PD
	s *corruptingDevice
}

type corruptingCQ struct {
	verbs.CQ
	s *corruptingDevice
}

func (s *corruptingDevice) AllocPD() (verbs.PD, error) {
	pd, err := s.Context.AllocPD()
	return &corruptingPD{pd, s}, err
}

func (p *corruptingPD) RegMR(init verbs.MRInit) (verbs.MR, error) {
	p.s.buf = init.Buf
	return p.PD.RegMR(init)
}

func (s *corruptingDevice) CreateCQ(init verbs.CQInit) (verbs.CQ, error) {
	cq, err := s.Context.CreateCQ(init)
	return &corruptingCQ{cq, s}, err
}

func (c *corruptingCQ) Poll(into []verbs.WC) (int, error) {
	n, err := c.CQ.Poll(into)
	if n > 0 {
		c.s.buf[64+c.s.at] ^= 0x10
	}
	return n, err
}

func (s *corruptingDevice) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	init.PD, init.SendCQ, init.RecvCQ = init.PD.(*corruptingPD).PD, init.SendCQ.(*corruptingCQ).CQ, init.RecvCQ.(*corruptingCQ).CQ
	return s.Context.CreateQP(init)
}

// A flipped bit is detected in the received data and around it.
func TestWrongBytesMakeCasesFail(t *testing.T) {
	t.Parallel()
	for at, want := range map[int]string{0: "+0", 1024: "+1024", -1: "-1", 1025: "+1025"} {
		a, b := testutil.HostPair(t, mtu)
		theirs := openEnd(t, b, "softroce")
		theirs.Devices[interop.IPv4] = &corruptingDevice{Context: theirs.Devices[interop.IPv4], at: at}
		s, cases := withCases(t, &interop.Suite{Ours: openEnd(t, a, "softroce"), Theirs: theirs})
		failed := runMatching(t, s, cases, "send/ours/hand/ipv4/1025")
		if len(failed) != 1 || !strings.Contains(failed[0].Why, "1 of 1025 octets differ, the first at offset "+want+" of the area") {
			t.Errorf("octet %d: %v", at, failed)
		}
	}
}

// A device with type 2 windows alone gets memory that windows may be bound to.
func TestType2WindowsNeedNoType1(t *testing.T) {
	t.Parallel()
	a, b := testutil.HostPair(t, mtu)
	ends := [2]*interop.End{openEnd(t, a, "softroce"), openEnd(t, b, "softroce")}
	for _, e := range ends {
		e.Devices[interop.IPv4] = nics.Restrictions{MissingCaps: verbs.CapMWType1}.Apply(e.Devices[interop.IPv4])
	}
	s, cases := withCases(t, &interop.Suite{Ours: ends[0], Theirs: ends[1]})
	for _, pattern := range []string{"window-2/*/hand/ipv4", "send-inv/*/hand/ipv4"} {
		s.OnResult = func(r interop.Result) {
			if r.Verdict != interop.Pass {
				t.Errorf("%s: %v, %s", r.Case.Name(), r.Verdict, r.Why)
			}
		}
		must.Get(s.Run(t.Context(), must.Get(interop.Matching(cases, pattern))(t)))(t)
	}
}
