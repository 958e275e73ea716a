package consulapi

// This group has no services and no events: what lists them lists none, which programs that show all that there
// is, such as consul-template, accept. Registering one is refused.

// agentServices lists the services of this node: none.
func (c *call) agentServices(string) error {
	if err := c.local("node/" + c.nodes().own()); err != nil {
		return err
	}
	return c.answer(struct{}{})
}

// catalogServices lists the services of all nodes: none.
func (c *call) catalogServices(string) error {
	if err := c.awaitList("node_prefix/"); err != nil {
		return err
	}
	return c.answer(struct{}{})
}

// healthChecks lists the checks of a service: none.
func (c *call) healthChecks(service string) error {
	if service == "" {
		return invalid("Missing service name")
	}
	if err := c.awaitList("node_prefix/"); err != nil {
		return err
	}
	return c.answer([]healthCheck{})
}

// eventList lists the recent events: none.
func (c *call) eventList(string) error {
	if err := c.awaitList("agent/" + c.nodes().own()); err != nil {
		return err
	}
	return c.answer([]struct{}{})
}
