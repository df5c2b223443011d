package certificate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fabrictest/fabrictest/internal/regularfile"
)

// namespace keeps signatures of certificates from being taken for others of the same
// key.
const namespace = "fabrictest-certificate"

// Sign signs the manifest of a folder with an SSH key: a private one, or a public one
// whose private half an SSH agent has.
func Sign(ctx context.Context, dir, key string) error {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		return errors.New("signing needs ssh-keygen, which is not on PATH: install OpenSSH (Debian: apt install openssh-client)")
	}
	file := filepath.Join(dir, ManifestFile)
	if err := os.Remove(file + ".sig"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // ssh-keygen would ask whether to replace it
	}
	_, err := run(exec.CommandContext(ctx, "ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", namespace, file))
	return err
}

// errUnsigned is that of a folder without a signature whose signer was asked for.
var errUnsigned = errors.New("it is not signed")

// isSigned reports whether a folder has a signature, good or not.
func isSigned(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, SignatureFile))
	return err == nil
}

// checkKey has ssh-keygen check that a folder's signature is one of its manifest, and
// returns what it says of the key. It says nothing of whose key that is.
func checkKey(ctx context.Context, dir string, manifest []byte) (key string, err error) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		return "not checked: ssh-keygen is not on PATH", nil
	}
	sig := filepath.Join(dir, SignatureFile)
	if err := regularfile.Check(sig); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-Y", "check-novalidate", "-n", namespace, "-s", sig)
	cmd.Stdin = bytes.NewReader(manifest)
	out, err := run(cmd)
	if err != nil {
		return "", fmt.Errorf("the signature does not fit: %w", err)
	}
	_, key, _ = strings.Cut(strings.TrimSpace(out), " with ")
	return "by " + key, nil
}

// checkSignature has ssh-keygen check who signed a folder's manifest. signers is a
// file of allowed signers, as ssh-keygen(1) describes it.
func checkSignature(ctx context.Context, dir, signers string, manifest []byte) (who string, err error) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		return "", errors.New("checking a signature needs ssh-keygen, which is not on PATH: install OpenSSH (Debian: apt install openssh-client)")
	}
	sig := filepath.Join(dir, SignatureFile)
	if !isSigned(dir) {
		return "", errUnsigned
	}
	for _, file := range []string{sig, signers} { // ssh-keygen would wait for a pipe
		if err := regularfile.Check(file); err != nil {
			return "", err
		}
	}
	out, err := run(exec.CommandContext(ctx, "ssh-keygen", "-Y", "find-principals", "-s", sig, "-f", signers))
	if err != nil {
		return "", fmt.Errorf("signed by nobody whom %s allows: %w", signers, err)
	}
	who, _, _ = strings.Cut(strings.TrimSpace(out), "\n")
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-Y", "verify", "-q", "-f", signers, "-I", who, "-n", namespace, "-s", sig)
	cmd.Stdin = bytes.NewReader(manifest)
	if _, err := run(cmd); err != nil {
		return "", fmt.Errorf("the signature of %s does not fit: %w", who, err)
	}
	return who, nil
}

func run(cmd *exec.Cmd) (string, error) {
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(errs.String()+out.String()))
	}
	return out.String(), nil
}
