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

// namespace is the SSH signature namespace of certificates.
const namespace = "fabrictest-certificate"

// Sign signs the manifest of a folder with an SSH key: a private key file, or a public one
// whose private key an SSH agent has.
func Sign(ctx context.Context, dir, key string) error {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		return errors.New("signing needs ssh-keygen, which is not on PATH: install OpenSSH (Debian: apt install openssh-client)")
	}
	file := filepath.Join(dir, ManifestFile)
	if err := os.Remove(file + ".sig"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // ssh-keygen asks before replacing a file
	}
	_, err := run(exec.CommandContext(ctx, "ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", namespace, file))
	return err
}

// errUnsigned is the error of a missing signature.
var errUnsigned = errors.New("the certificate is not signed")

// isSigned reports whether a folder has a signature, valid or not.
func isSigned(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, SignatureFile))
	return err == nil
}

// checkKey checks the signature with ssh-keygen, and returns the description of its key. It
// does not check whose key it is.
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
		return "", fmt.Errorf("invalid signature: %w", err)
	}
	_, key, _ = strings.Cut(strings.TrimSpace(out), " with ")
	return "by " + key, nil
}

// checkSignature checks with ssh-keygen that a key in signers, an allowed signers file of
// ssh-keygen(1), made the signature.
func checkSignature(ctx context.Context, dir, signers string, manifest []byte) (who string, err error) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		return "", errors.New("checking a signature needs ssh-keygen, which is not on PATH: install OpenSSH (Debian: apt install openssh-client)")
	}
	sig := filepath.Join(dir, SignatureFile)
	if !isSigned(dir) {
		return "", errUnsigned
	}
	for _, file := range []string{sig, signers} { // ssh-keygen would block on a pipe
		if err := regularfile.Check(file); err != nil {
			return "", err
		}
	}
	out, err := run(exec.CommandContext(ctx, "ssh-keygen", "-Y", "find-principals", "-s", sig, "-f", signers))
	if err != nil {
		return "", fmt.Errorf("no signer in %s made the signature: %w", signers, err)
	}
	who, _, _ = strings.Cut(strings.TrimSpace(out), "\n")
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-Y", "verify", "-q", "-f", signers, "-I", who, "-n", namespace, "-s", sig)
	cmd.Stdin = bytes.NewReader(manifest)
	if _, err := run(cmd); err != nil {
		return "", fmt.Errorf("invalid signature of %s: %w", who, err)
	}
	return who, nil
}

// run runs a command and returns its standard output. An error has both outputs.
func run(cmd *exec.Cmd) (string, error) {
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(errs.String()+out.String()))
	}
	return out.String(), nil
}
