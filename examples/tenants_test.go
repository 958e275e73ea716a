package examples

import "testing"

// Two tenants have a group each; one of them is deleted and created again.
func TestTenants_GroupEach(t *testing.T) {
	t.Parallel()
	p := start(t, "tenants", nil, "tenants")
	for _, line := range []string{
		`^group 0: conclave, 3 voters$`,
		`^group 1: loud, 3 voters$`,
		`^group 2: quiet, 3 voters$`,
		`^both tenants hold their lock invoices$`,
		`^quiet alone: 19 of 20 locks take at most `,
		`^quiet with loud in its group: `,
		`^quiet with loud in a group of its own: `,
		`^loud is not deleted while it holds a lock$`,
		`^loud is deleted by force, and its holder knows$`,
		`^another group of that name grants a larger fence$`,
	} {
		p.expect(line)
	}
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}
