package kernel

import "testing"

func TestHasVirtualisation(t *testing.T) {
	for text, want := range map[string]bool{
		"model name : x\nflags\t\t: fpu vme svm avx\n": true, "flags\t\t: fpu vmx\n": true,
		"flags\t\t: fpu vme\n": false, "model name : vmx\nflags : svm_lock\n": false, "": false,
	} {
		if got := hasVirtualisation([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestTCGNeedsNoKVM(t *testing.T) {
	for _, c := range []Config{{Accel: TCG}, {ICount: true}} {
		if got, err := chooseAccel(c); got != TCG || err != nil {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
	works := kvmWorks()
	got, err := chooseAccel(Config{Accel: KVM})
	if (works == nil) != (err == nil) || (err == nil && got != KVM) {
		t.Errorf("KVM works: %v; chosen: %v, %v", works, got, err)
	}
}
